"""Former names of options: what becomes of them, and when they say so."""

import pytest

from embodied.core.renamed import renew

CASES = [
    # given, what becomes of it, the note
    ({'run.transport': 'zmq'}, {'run.transport': 'native'}, 'run.transport=native'),
    ({'run.transport': 'portal'}, {'run.transport': 'portal'}, None),
    (
        {'script': 'parallel_env', 'replica': 3, 'run.first_env': 0},
        {'script': 'parallel_env', 'replica': 0, 'run.first_env': 3},
        'run.first_env=3',
    ),
    (
        {'script': 'parallel_envs', 'replica': 0, 'run.first_env': 2},
        {'script': 'parallel_envs', 'replica': 0, 'run.first_env': 2},
        None,
    ),
    ({'script': 'parallel', 'replica': 3}, {'script': 'parallel', 'replica': 3}, None),
    ({}, {}, None),
]


@pytest.mark.parametrize(('given', 'expected', 'note'), CASES)
def test_options_have_the_names_of_today(given, expected, note):
    notes = []
    assert renew(given, notes.append) == expected
    assert len(notes) == (note is not None)
    assert all(f'called {note} now' in x for x in notes)


def test_a_note_is_a_warning_unless_something_else_takes_it():
    with pytest.warns(FutureWarning, match='run.transport=zmq is called'):
        renew({'run.transport': 'zmq'})
