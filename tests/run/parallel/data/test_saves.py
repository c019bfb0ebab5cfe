"""Saves of several roles that belong together, and what a restart takes of them."""

import json
import shutil
from types import SimpleNamespace

import pytest

from embodied.core.checkpoint import Checkpoint, load_part
from embodied.core.errors import CheckpointError
from embodied.run.parallel.context import RoleContext
from embodied.run.parallel.saves import coordinator as saves_lib
from embodied.run.parallel.saves.coordinator import Saves
from embodied.run.parallel.saves.manifest import Manifest
from embodied.transport import Future, RemoteError

FULL = 'OSError: [Errno 28] No space left on device'
COUNTERS = {'replay': 'steps', 'logger': 'logger_step'}


def make_context(folder):
    settings = SimpleNamespace(checkpoints=folder, keep=1, logdir=folder, trust=False)
    return RoleContext(settings)


class Part:
    """Saves one number."""

    def __init__(self, value=0):
        self.value = value

    def save(self):
        return self.value

    def load(self, data):
        self.value = data


class Patient:
    """What a future needs of its client when no thread has to wait for it."""

    def __init__(self):
        self.waits = []  # seconds

    def wait(self, future, timeout):
        self.waits.append(timeout)

    def dropped(self, error):
        pass


class Run:
    """An agent that saves together with a replay and a logger which answer or not."""

    def __init__(self, folder):
        self.folder = folder
        self.parts = {role: Part() for role in ('agent', 'replay', 'logger')}
        self.checkpoints = {role: self.open(role) for role in self.parts}
        self.futures, self.clients = {}, {}
        self.answers_at_once = False
        self.events = []
        self.context = make_context(folder)
        self.saves = Saves(
            self.checkpoints['agent'],
            self.ask,
            self.counters,
            lambda event, **details: self.events.append((event, details)),
            self.context,
        )

    def open(self, role):
        pinned = lambda: Manifest.read(self.folder).saves.get(role)
        checkpoint = Checkpoint(self.folder / role, keep=1, pinned=pinned)
        checkpoint.add(role, self.parts[role])
        return checkpoint

    def counters(self):
        return {'updates': self.parts['agent'].value}

    def ask(self, role):
        self.clients[role] = Patient()
        self.futures[role] = Future(self.clients[role])
        if self.answers_at_once:
            self.answer(role)
        return self.futures[role]

    def train(self):
        for part in self.parts.values():
            part.value += 1

    def answer(self, role):
        self.save(role)
        value = {
            'version': self.checkpoints[role].version,
            'counters': {COUNTERS[role]: self.parts[role].value},
        }
        self.futures[role].complete(value)

    def fail(self, role):
        """Its save fails there, as on a full disk."""
        self.futures[role].complete(None, RemoteError(FULL, 'Traceback ...', role))

    def save(self, role):
        self.checkpoints[role].save()
        self.checkpoints[role].wait()

    def save_together(self):
        self.saves.begin()
        for role in ('replay', 'logger'):
            self.answer(role)
        self.saves.advance(0)
        self.checkpoints['agent'].wait()

    def restart(self):
        """What each role finds when all of them start again."""
        Manifest.read(self.folder).adopt(self.folder)
        return {role: load_part(self.folder / role, role) for role in self.parts}


def save_and_begin_another(folder):
    """A run with a whole save and the beginning of the next, and the former's names."""
    run = Run(folder)
    run.train()
    run.save_together()
    before = Manifest.read(folder).saves
    run.train()
    run.saves.begin()
    return run, before


def test_the_agent_saves_after_the_others_and_the_manifest_names_all(tmp_path):
    run = Run(tmp_path)
    run.train()
    run.saves.begin()
    assert run.saves.busy
    run.answer('replay')
    run.saves.advance(0)
    assert not run.checkpoints['agent'].exists()
    run.answer('logger')
    run.saves.advance(0)
    run.checkpoints['agent'].wait()
    assert not run.saves.busy
    manifest = Manifest.read(tmp_path)
    assert manifest.saves == {k: v.version for k, v in run.checkpoints.items()}
    assert manifest.counters == {'updates': 1, 'steps': 1, 'logger_step': 1}
    assert run.restart() == dict.fromkeys(run.parts, 1)


@pytest.mark.parametrize('ahead', ['replay', 'logger', 'agent'])
def test_a_restart_takes_the_saves_that_were_made_together(tmp_path, ahead):
    """One role has saved alone since, as when the run was killed in between."""
    run = Run(tmp_path)
    run.train()
    run.save_together()
    run.train()
    run.save(ahead)
    assert load_part(tmp_path / ahead, ahead) == 2
    assert run.restart() == dict.fromkeys(run.parts, 1)


def test_after_a_clean_end_the_last_saves_count(tmp_path):
    run = Run(tmp_path)
    run.train()
    run.save_together()
    run.saves.save_agent(0, 'run.steps')
    run.checkpoints['agent'].wait()
    run.train()
    run.save('replay')
    assert run.restart() == {'agent': 1, 'replay': 2, 'logger': 1}


def test_a_role_that_is_away_does_not_keep_the_agent_from_saving(tmp_path, monkeypatch):
    monkeypatch.setattr(saves_lib, 'WRITERS_ANSWER', 0.0)
    run, before = save_and_begin_another(tmp_path)
    run.answer('logger')
    run.saves.advance(0)
    run.checkpoints['agent'].wait()
    after = Manifest.read(tmp_path).saves
    assert after['replay'] == before['replay'] and after['logger'] != before['logger']
    assert run.restart() == {'agent': 2, 'replay': 1, 'logger': 2}
    # Its answer comes late and is taken by the next save.
    late = run.futures['replay']
    run.saves.begin()
    assert run.futures['replay'] is late
    run.answer('replay')
    run.answer('logger')
    run.saves.advance(0)
    run.checkpoints['agent'].wait()
    assert run.restart()['replay'] == 2


def test_the_last_save_takes_no_answer_to_a_save_before(tmp_path):
    run = Run(tmp_path)
    run.train()
    run.saves.begin()
    for role in ('replay', 'logger'):
        run.answer(role)
    old = dict(run.futures)
    run.train()
    run.answers_at_once = True
    assert run.saves.await_writers() == 2
    assert old['replay'] is not run.futures['replay']
    run.saves.save_agent(0, 'run.steps')
    run.checkpoints['agent'].wait()
    assert Manifest.read(tmp_path).counters['steps'] == 2


def test_the_agent_does_not_wait_for_a_role_that_is_lost(tmp_path):
    run = Run(tmp_path)
    run.train()
    run.saves.begin()
    run.answer('replay')
    run.context.health.ask_to_end('', ['logger'])
    run.saves.await_writers()
    assert not any(run.clients['logger'].waits)
    assert any(run.clients['replay'].waits)


# Saves that fail


@pytest.mark.parametrize('broken', ['replay', 'logger'])
def test_a_save_that_fails_in_a_role_keeps_the_agent_going(tmp_path, broken, capsys):
    run, before = save_and_begin_another(tmp_path)
    (other,) = {'replay', 'logger'} - {broken}
    run.answer(other)
    run.fail(broken)
    run.saves.advance(0)
    run.checkpoints['agent'].wait()
    assert run.events == [('save_failed', {'role': broken, 'reason': FULL})]
    assert f'The {broken} could not be saved' in capsys.readouterr().out
    after = Manifest.read(tmp_path).saves
    assert after[broken] == before[broken]
    assert after['agent'] != before['agent'] and after[other] != before[other]
    assert run.restart() == {'agent': 2, other: 2, broken: 1}
    # The next one tries again.
    run.train()
    run.save_together()
    assert run.restart() == dict.fromkeys(run.parts, 3)
    assert len(run.events) == 1


def test_a_failed_save_does_not_keep_the_last_one_waiting(tmp_path):
    run = Run(tmp_path)
    run.train()
    run.saves.begin()
    run.fail('replay')
    run.fail('logger')
    run.answers_at_once = True
    assert run.saves.await_writers() == 1
    assert [details['role'] for _, details in run.events] == ['replay', 'logger']


class Unwritable:
    """Cannot be pickled, as an array cannot be written to a full disk."""

    def __reduce__(self):
        raise OSError(28, 'No space left on device')


def test_a_failed_save_of_the_agent_is_told_at_once_and_made_up_for(tmp_path):
    run = Run(tmp_path)
    run.checkpoints['agent']._frozen.add('agent')  # as agents are: written later
    run.train()
    run.save_together()
    before = Manifest.read(tmp_path)
    run.train()
    good, run.parts['agent'].value = run.parts['agent'].value, Unwritable()
    run.saves.begin()
    for role in ('replay', 'logger'):
        run.answer(role)
    run.saves.advance(0)
    run.parts['agent'].value = good
    run.checkpoints['agent'].join()
    assert not run.saves.busy
    run.saves.advance(0)  # as after every update
    ((event, details),) = run.events
    assert (event, details['role']) == ('save_failed', 'agent')
    assert 'No space left on device' in details['reason']
    assert Manifest.read(tmp_path) == before
    assert run.restart() == dict.fromkeys(run.parts, 1)
    run.save_together()
    assert run.restart() == dict.fromkeys(run.parts, 2)
    assert len(run.events) == 1


def test_the_last_save_of_the_agent_must_not_fail(tmp_path):
    run = Run(tmp_path)
    run.checkpoints['agent']._frozen.add('agent')
    run.parts['agent'].value = Unwritable()
    run.counters = dict
    run.saves._counters = dict
    run.saves.save_agent(0, 'run.steps')
    with pytest.raises(CheckpointError, match='No space left'):
        run.checkpoints['agent'].wait()


@pytest.mark.parametrize(
    ('reason', 'state'),
    [
        ('run.steps', 'finished'),
        ('run.duration', 'stopped'),
        ('SIGTERM', 'stopped'),
    ],
)
def test_the_manifest_says_how_a_run_ended(tmp_path, reason, state):
    run = Run(tmp_path)
    run.saves.save_agent(0, reason)
    run.checkpoints['agent'].wait()
    manifest = Manifest.read(tmp_path)
    assert manifest.ended and (manifest.state, manifest.reason) == (state, reason)
    run.saves.save_agent(0)  # of a run that goes on
    run.checkpoints['agent'].wait()
    manifest = Manifest.read(tmp_path)
    assert not manifest.ended and (manifest.state, manifest.reason) == ('', '')


def test_a_manifest_without_a_state_can_be_read(tmp_path):
    """As version 0.1.0 wrote it."""
    written = {'saves': {'agent': 'x'}, 'counters': {'steps': 3}, 'ended': True}
    (tmp_path / 'manifest.json').write_text(json.dumps(written))
    assert Manifest.read(tmp_path) == ({'agent': 'x'}, {'steps': 3}, True, '', '')


def spoil(folder, name):
    (path,) = folder.glob(f'{name}/*/{name}.pkl')
    path.write_bytes(b'?')


@pytest.mark.parametrize('role', ['replay', 'logger', 'agent'])
def test_a_damaged_save_is_replaced_by_the_newest_whole_one_of_its_role(tmp_path, role):
    run = Run(tmp_path)
    for checkpoint in run.checkpoints.values():
        checkpoint.keep = 2
    for _ in range(2):
        run.train()
        run.save_together()
    newest = tmp_path / role / run.checkpoints[role].version / f'{role}.pkl'
    newest.write_bytes(newest.read_bytes()[:-2] + b'?.')
    events = []
    note = lambda event, **details: events.append((event, details))
    Manifest.read(tmp_path).adopt(tmp_path, note)
    assert run.restart() == {**dict.fromkeys(run.parts, 2), role: 1}
    ((event, details),) = events
    assert event == 'damaged' and details['file'] == str(newest.parent)


@pytest.mark.parametrize('role', ['replay', 'logger', 'agent'])
def test_a_role_without_a_whole_save_is_refused_by_name(tmp_path, role):
    run = Run(tmp_path)
    run.train()
    run.save_together()
    spoil(tmp_path, role)
    before = sorted(tmp_path.rglob('*'))
    with pytest.raises(CheckpointError, match=rf'{role}\.pkl has 1 bytes'):
        run.restart()
    assert sorted(tmp_path.rglob('*')) == before


def test_an_agent_that_is_gone_does_not_begin_from_scratch(tmp_path):
    run = Run(tmp_path)
    run.train()
    run.save_together()
    shutil.rmtree(tmp_path / 'agent')
    for ended in (False, True):
        manifest = Manifest.read(tmp_path)._replace(ended=ended)
        with pytest.raises(CheckpointError, match='agent holds no save'):
            manifest.adopt(tmp_path)
    with pytest.raises(CheckpointError, match='agent holds no save'):
        saves_lib.open_checkpoint(make_context(tmp_path), 'agent')


def test_replay_and_logger_can_do_without_their_saves(tmp_path):
    run = Run(tmp_path)
    run.train()
    run.save_together()
    for role in ('replay', 'logger'):
        shutil.rmtree(tmp_path / role)
    events = []
    note = lambda event, **details: events.append(details['file'])
    Manifest.read(tmp_path).adopt(tmp_path, note)
    assert events == [str(tmp_path / 'replay'), str(tmp_path / 'logger')]


@pytest.mark.parametrize('role', ['replay', 'logger', 'agent'])
def test_a_save_that_nothing_names_is_found(tmp_path, role):
    run = Run(tmp_path)
    run.train()
    run.save_together()
    (tmp_path / 'manifest.json').unlink()
    (tmp_path / role / 'latest').unlink()
    assert run.restart() == dict.fromkeys(run.parts, 1)


@pytest.mark.parametrize('content', [b'', b'{', b'[]', b'\xff', b'{"saves": 3}', None])
def test_a_manifest_that_cannot_be_read_is_set_aside(tmp_path, content, capsys):
    run = Run(tmp_path)
    run.train()
    run.save_together()
    path = tmp_path / 'manifest.json'
    if content is None:  # One digit has changed.
        content = path.read_bytes().replace(b'"steps": 1', b'"steps": 9')
    path.write_bytes(content)
    events = []
    note = lambda event, **details: events.append((event, details['kept']))
    assert Manifest.recover(tmp_path, note) == Manifest({}, {})
    assert events == [('damaged', 'manifest.json.bad')]
    assert (tmp_path / 'manifest.json.bad').read_bytes() == content
    assert str(path) in capsys.readouterr().err
    assert run.restart() == dict.fromkeys(run.parts, 1)


def test_manifests_of_before_are_read(tmp_path):
    data = {'saves': {'agent': 'x'}, 'counters': {'steps': 3}, 'ended': True}
    (tmp_path / 'manifest.json').write_text(json.dumps(data))
    assert Manifest.read(tmp_path) == Manifest({'agent': 'x'}, {'steps': 3}, True)


def test_a_manifest_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / 'manifest.json').write_text(json.dumps({'saves': 3}))
    with pytest.raises(CheckpointError, match=r'manifest\.json cannot be read'):
        Manifest.read(tmp_path)
