"""Faults planted in vector environments are found and named; sound ones have none."""

import functools
import re

import faulty_members as faulty
import gymnasium
import numpy as np
import pytest
import sound_members as sound
from functional_walk import Walk
from test_checker import Sound, Unbounded
from together import Together
from walkers import SameStep, Walkers

import embodied
from dreamerv3.commands import check_env
from dreamerv3.main import main
from embodied.core.errors import SpaceError
from embodied.envs.checking import checker
from embodied.envs.vector.functional.members import FunctionalVectorEnv
from embodied.envs.vector.gymnasium_vector import FromGymnasiumVector


def together(seed, final):
    return Together([functools.partial(Sound, 100 * seed + i) for i in range(3)], final)


def cartpoles(seed, mode):
    vector = gymnasium.vector.SyncVectorEnv(
        [lambda: gymnasium.make('CartPole-v1')] * 5,
        autoreset_mode=gymnasium.vector.AutoresetMode[mode],
    )
    return FromGymnasiumVector(vector, seed=seed)


def jax_walks(seed):
    return FunctionalVectorEnv(Walk(), 6, seed)


SOUND = {
    'next step': Walkers,
    'same step': SameStep,
    'one member': sound.OneAlone,
    'many members': sound.ManyMembers,
    'deterministic': sound.Deterministic,
    'all members the same': sound.AllTheSame,
    'deterministic, same step': sound.DeterministicSameStep,
    'shared generator': sound.SharedGenerator,
    'noise': sound.Noise,
    'without resets': sound.OnItsOwn,
    'constant': sound.Constant,
    'lists': sound.Lists,
    'one buffer': sound.OneBuffer,
    'images': functools.partial(together, final=False),
    'images, same step': functools.partial(together, final=True),
    'CartPole, NEXT_STEP': functools.partial(cartpoles, mode='NEXT_STEP'),
    'CartPole, SAME_STEP': functools.partial(cartpoles, mode='SAME_STEP'),
    'CartPole, DISABLED': functools.partial(cartpoles, mode='DISABLED'),
    'functions of JAX': jax_walks,
}


@pytest.mark.parametrize('name', SOUND)
def test_sound_vector_environments_have_facts_but_no_findings(name):
    report = checker.check(SOUND[name], steps=250, seconds=60)
    assert report.findings == []
    assert re.fullmatch(r'\d+, which step together', report.facts['members'])
    assert 'rows/s' in report.facts['speed']
    assert re.match(r'\d+ of \d+ to \d+ steps', report.facts['episodes'])


FAULTS = [
    (
        faulty.FinalLeftOut,
        r'Last observations are lost.*members 0, 1, 2 and 1 more.*got|begin',
    ),
    (faulty.OneRowForBoth, r'is_last=True and is_first=True.*expected a last row'),
    (
        faulty.FirstForLast,
        r'show the next episode already.*expected.*got.*in all \d+ ends',
    ),
    (
        faulty.LateRewards,
        r'come one row late.*expected 0.*got 1 there and 0 in the last row',
    ),
    (faulty.EarlyRewards, r'First rows of episodes of members 0, 1.*expected 0, got 2'),
    (faulty.LateFirst, r'is_first comes one row late for members 0, 1'),
    (faulty.NeverFirst, r'rows of member 2 have is_first=False, expected True'),
    (faulty.EarlyTerminal, r'is_terminal is True in rows of members 1, 2 and 3 that'),
    (faulty.Stillborn, r'Episodes of member 0 end with their first rows'),
    (faulty.EqualSeeds, r'All 4 members draw the same random numbers'),
    (faulty.EqualAndUnseeded, r'All 4 members draw the same random numbers'),
    (faulty.OddMember, r"'place' of member 2 .*expected float32.*\(2,\).*got.*\(3,\)"),
    (faulty.OddLastRow, r"Last observation 'place' of member \d .*\(2,\).*got.*\(3,\)"),
    (
        faulty.WordAmongNumbers,
        r"'log/steps' of member 2 .*expected float32.*got object",
    ),
    (
        faulty.OtherNumber,
        r"'place' of a vector.*expected 4 rows.*got float32 of shape \(5, 2",
    ),
    (faulty.RewardsInColumns, r"'reward' of member 0 .*expected.*\(\), got.*\(1,\)"),
    (
        faulty.DeafToResets,
        r'reset of member 0 in mid-episode is ignored.*expected.*got',
    ),
    (faulty.ResetsAll, r'A reset of some members begins episodes of all: members'),
    (faulty.ResetsAllSilently, r'also resets all others.*show the beginning'),
    (faulty.ResetsAllOnRequest, r'also resets members 1, 2 and 3.*expected False'),
    (faulty.NotANumber, r"Observation 'place' of member 2 .*got.*NaN"),
    (faulty.OutOfBounds, r"Last observation 'place' of member \d.*to 50, got.*99"),
    (faulty.KeyLeftOut, r"lack the keys \['place'\].*undeclared keys \['places'\]"),
    (
        faulty.KeyLeftOutAtTheEnd,
        r"Under 'final': Observations lack the keys \['place'\]",
    ),
    (faulty.FlagLeftOutAtTheEnd, r"under 'final' lack is_last"),
    (faulty.FinalIsNoPair, r"'final' is a pair.*Got a dict"),
    (
        faulty.FinalOfAll,
        r"Expected is_last=True, got is_last=False in the row under 'final'",
    ),
    (
        faulty.FinalBesideNoFirst,
        r'Expected is_first=True, got is_first=False in the row be',
    ),
    (faulty.Nobody, r'different members from 0 to 3, got the members \[7'),
    (
        faulty.TerminalLimit,
        r'Members 0, 1, 2 and 1 more: All . episodes ended after 130 steps',
    ),
    (faulty.Crash, r'ZeroDivisionError: five'),
    (faulty.NoDict, r'returned a tuple, not a dict'),
]


@pytest.mark.parametrize(
    'kind, words', FAULTS, ids=[kind.__name__ for kind, _ in FAULTS]
)
def test_planted_faults_of_members_are_errors(kind, words):
    report = checker.check(kind, steps=300, seconds=60)
    errors = [finding for finding in report.findings if finding.severity == 'error']
    assert len(errors) == 1, errors
    assert re.search(words, errors[0].what), errors[0].what
    assert all(finding.fix for finding in report.findings)


WARNINGS = [
    (faulty.ResetTwice, 'look like beginnings of episodes'),
    (faulty.Unseeded, r"same seed differ in \['place'"),
]


@pytest.mark.parametrize('kind, words', WARNINGS, ids=['ResetTwice', 'Unseeded'])
def test_doubtful_vector_environments_are_warned_of(kind, words):
    (finding,) = checker.check(kind, steps=300, seconds=60).findings
    assert finding.severity == 'warning'
    assert re.search(words, finding.what), finding.what


def test_spaces_are_checked_like_those_of_single_environments():
    make = lambda seed: Together([functools.partial(Unbounded, seed)] * 2)
    findings = checker.check(make, steps=50).findings
    assert any('no finite bounds' in finding.what for finding in findings)


class Counted(SameStep):
    counts = {'open': 0, 'most': 0}

    def __init__(self, seed=0):
        super().__init__(seed)
        self.counts['open'] += 1
        self.counts['most'] = max(self.counts.values())

    def close(self):
        self.counts['open'] -= 1


def test_the_environment_of_the_trial_is_closed_before_others_are_made():
    assert checker.check(Counted, steps=60).findings == []
    assert Counted.counts == {'open': 0, 'most': 1}


@pytest.mark.parametrize(
    'kind, words',
    [
        (faulty.OddMember, r"Observation 'place' of member 2 .*\(2,\).*got.*\(3,\)"),
        (faulty.OtherNumber, r"'place' of a vector.*expected 4 rows.*got.*\(5, 2\)"),
        (faulty.FinalIsNoPair, r"'final' is a pair of member numbers.*Got a dict"),
        (
            faulty.FinalOfAll,
            r"got is_last=False in the row under 'final' of the members \[",
        ),
    ],
)
@pytest.mark.parametrize('wrap', [embodied.envs.wrap, lambda env: env])
def test_training_stops_with_the_member_key_expected_and_got(kind, words, wrap):
    driver = embodied.Driver([lambda: wrap(kind(0))] * 4, parallel=False)
    driver.reset(lambda count: ())
    act = lambda carry, obs: (carry, {'push': np.zeros((4, 2), np.float32)}, {})
    with pytest.raises(SpaceError, match=words):
        driver(act, steps=200)
    driver.close()


MODULE = """
import gymnasium
from walkers import SameStep, Walkers


class Equal(Walkers):
    def seeds(self, seed):
        return [seed] * self.num


def poles():
    make = lambda: gymnasium.make('CartPole-v1')
    return gymnasium.vector.SyncVectorEnv([make] * 3)
"""


def test_the_command_takes_factories_of_vector_environments(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / 'my_checked_vectors.py').write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(['check-env', 'my_checked_vectors:SameStep', '--steps', '100']) == 0
    out = capsys.readouterr().out
    assert 'members: 4, which step together' in out and 'No faults found' in out
    assert main(['check-env', 'my_checked_vectors:Equal', '--steps', '100']) == 1
    out = capsys.readouterr().out
    assert out.startswith('error: All 4 members draw the same random numbers')
    assert 'seed + member' in out
    assert main(['check-env', 'my_checked_vectors:poles', '--steps', '100']) == 0
    assert 'members: 3' in capsys.readouterr().out


def test_the_command_gives_suites_of_any_size_four_members():
    flags = ['--env.gym.vector', 'True']
    report = check_env.check_task('gym:CartPole-v1', 100, 60, flags)
    assert report.findings == []
    assert report.facts['members'].startswith('4,')
    report = check_env.check_task('gym:CartPole-v1', 100, 60)
    assert report.findings == [] and 'members' not in report.facts
