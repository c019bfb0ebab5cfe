"""Faults planted in vector environments are found and named; sound ones have none."""

import functools
import re

import elements
import gymnasium
import numpy as np
import pytest
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


class OneAlone(Walkers):
    num = 1


class ManyMembers(SameStep):
    num = 40


class Deterministic(Walkers):
    noise = 0


class AllTheSame(SameStep):
    """Members differ by what they do alone."""

    noise = 0

    def begin(self, member):
        super().begin(member)
        self.goal[member] = self.shortest


class DeterministicSameStep(SameStep):
    noise = 0


class SharedGenerator(SameStep):
    """All members draw from one generator, one after the other."""

    def __init__(self, seed=0):
        super().__init__(seed)
        self.random = [np.random.default_rng(seed)] * self.num


class Noise(SharedGenerator):
    """Observations that have nothing to do with where members are."""

    num = 2

    def rows(self, first, last):
        place = self.random[0].normal(size=(self.num, 2)).astype(np.float32)
        return {**super().rows(first, last), 'place': place}


class OnItsOwn(SameStep):
    """Cannot begin episodes of single members, and says so."""

    resets_members = False

    def to_begin(self, reset):
        return reset if reset.all() else self.over


class Constant(Walkers):
    """Every observation is the same one."""

    def rows(self, first, last):
        rows = super().rows(first, last)
        return {**rows, 'place': np.zeros_like(rows['place'])}


class Lists(Walkers):
    """Returns lists with the arrays of members."""

    def step(self, actions):
        return {k: list(v) for k, v in super().step(actions).items()}


class OneBuffer(Walkers):
    """Returns the same arrays in every step."""

    def rows(self, first, last):
        return {**super().rows(first, last), 'place': self.place}


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
    'one member': OneAlone,
    'many members': ManyMembers,
    'deterministic': Deterministic,
    'all members the same': AllTheSame,
    'deterministic, same step': DeterministicSameStep,
    'shared generator': SharedGenerator,
    'noise': Noise,
    'without resets': OnItsOwn,
    'constant': Constant,
    'lists': Lists,
    'one buffer': OneBuffer,
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


class FinalLeftOut(SameStep):
    def step(self, actions):
        obs = super().step(actions)
        obs.pop('final', None)
        return obs


class OneRowForBoth(SameStep):
    def step(self, actions):
        obs = super().step(actions)
        members, _ = obs.pop('final', (np.zeros(0, int), None))
        obs['is_last'][members] = True
        return obs


class FirstForLast(SameStep):
    """Last rows have the observations of the rows beside them."""

    def step(self, actions):
        obs = super().step(actions)
        if 'final' in obs:
            members, last = obs['final']
            last['place'] = obs['place'][members]
        return obs


class ResetTwice(Walkers):
    """Observes the end of an episode after a reset, and then resets again."""

    def rows(self, first, last):
        for member in np.flatnonzero(last):
            self.begin(member)
        return super().rows(first, last)


class LateRewards(Walkers):
    def __init__(self, seed=0):
        super().__init__(seed)
        self.due = np.zeros(self.num, np.float32)

    def rows(self, first, last):
        rows = super().rows(first, last)
        reward, self.due = self.due, last.astype(np.float32)
        return {**rows, 'reward': reward}


class EarlyRewards(Walkers):
    def rows(self, first, last):
        rows = super().rows(first, last)
        return {**rows, 'reward': np.full(self.num, 2, np.float32)}


class LateFirst(Walkers):
    def __init__(self, seed=0):
        super().__init__(seed)
        self.begun = np.zeros(self.num, bool)

    def step(self, actions):
        obs = super().step(actions)
        first, self.begun = self.begun, obs['is_first']
        return {**obs, 'is_first': first}


class NeverFirst(Walkers):
    def rows(self, first, last):
        return super().rows(first & (np.arange(self.num) != 2), last)


class EarlyTerminal(Walkers):
    def rows(self, first, last):
        rows = super().rows(first, last)
        rows['is_terminal'][1:] |= (self.steps == 3)[1:]
        return rows


class Stillborn(Walkers):
    def rows(self, first, last):
        rows = super().rows(first, last)
        rows['is_last'][0] |= first[0]
        return rows


class EqualSeeds(Walkers):
    def seeds(self, seed):
        return [seed] * self.num


class EqualAndUnseeded(Walkers):
    def seeds(self, seed):
        return [int(np.random.SeedSequence().generate_state(1)[0])] * self.num


class Unseeded(Walkers):
    def seeds(self, seed):
        return [None] * self.num


class OddMember(Walkers):
    def step(self, actions):
        obs = super().step(actions)
        places = list(obs['place'])
        places[2] = np.zeros(3, np.float32)
        return {**obs, 'place': places}


class OddLastRow(SameStep):
    def step(self, actions):
        obs = super().step(actions)
        if 'final' in obs:
            members, last = obs['final']
            last['place'] = [np.zeros(3, np.float32) for _ in members]
        return obs


class WordAmongNumbers(Walkers):
    def step(self, actions):
        obs = super().step(actions)
        return {**obs, 'log/steps': [0.0, 1.0, None, 2.0]}


class OtherNumber(Walkers):
    def step(self, actions):
        obs = super().step(actions)
        return {k: np.concatenate([v, v[:1]]) for k, v in obs.items()}


class RewardsInColumns(Walkers):
    def step(self, actions):
        obs = super().step(actions)
        return {**obs, 'reward': obs['reward'][:, None]}


class DeafToResets(Walkers):
    def to_begin(self, reset):
        return self.over


class ResetsAll(Walkers):
    def to_begin(self, reset):
        return np.full(self.num, (reset | self.over).any())


class ResetsAllSilently(ResetsAll):
    def step(self, actions):
        asked = actions['reset'] | self.over
        obs = super().step(actions)
        return {**obs, 'is_first': asked}


class ResetsAllOnRequest(Walkers):
    def to_begin(self, reset):
        return np.full(self.num, True) if (reset & ~self.over).any() else self.over


class NotANumber(Walkers):
    def rows(self, first, last):
        rows = super().rows(first, last)
        rows['place'][2] = np.nan
        return rows


class OutOfBounds(SameStep):
    def begin_again(self, rows, ended):
        obs = super().begin_again(rows, ended)
        obs['final'][1]['place'][:] = 99
        return obs


class KeyLeftOut(Walkers):
    def rows(self, first, last):
        rows = super().rows(first, last)
        return {'places' if k == 'place' else k: v for k, v in rows.items()}


class KeyLeftOutAtTheEnd(SameStep):
    def begin_again(self, rows, ended):
        obs = super().begin_again(rows, ended)
        del obs['final'][1]['place']
        return obs


class FlagLeftOutAtTheEnd(SameStep):
    def begin_again(self, rows, ended):
        obs = super().begin_again(rows, ended)
        del obs['final'][1]['is_last']
        return obs


class FinalIsNoPair(SameStep):
    def begin_again(self, rows, ended):
        obs = super().begin_again(rows, ended)
        return {**obs, 'final': obs['final'][1]}


class FinalOfAll(SameStep):
    def begin_again(self, rows, ended):
        obs = super().begin_again(rows, ended)
        return {**obs, 'final': (np.arange(self.num), rows)}


class FinalBesideNoFirst(SameStep):
    def begin_again(self, rows, ended):
        obs = super().begin_again(rows, ended)
        obs['is_first'][:] = False
        return obs


class Nobody(SameStep):
    def begin_again(self, rows, ended):
        obs = super().begin_again(rows, ended)
        return {**obs, 'final': (np.full(len(ended), 7), obs['final'][1])}


class TerminalLimit(Walkers):
    obs_space = {**Walkers.obs_space, 'place': elements.Space(np.float32, (2,))}
    shortest = 130
    noise = 0

    def begin(self, member):
        super().begin(member)
        self.goal[member] = self.shortest


class Crash(Walkers):
    def move(self, member, push):
        super().move(member, push)
        if self.steps[member] == 5:
            raise ZeroDivisionError('five')


class NoDict(Walkers):
    def step(self, actions):
        return super().step(actions), 0


FAULTS = [
    (
        FinalLeftOut,
        r'Last observations are lost.*members 0, 1, 2 and 1 more.*got|begin',
    ),
    (OneRowForBoth, r'is_last=True and is_first=True.*expected a last row'),
    (FirstForLast, r'show the next episode already.*expected.*got.*in all \d+ ends'),
    (LateRewards, r'come one row late.*expected 0.*got 1 there and 0 in the last row'),
    (EarlyRewards, r'First rows of episodes of members 0, 1.*expected 0, got 2'),
    (LateFirst, r'is_first comes one row late for members 0, 1'),
    (NeverFirst, r'rows of member 2 have is_first=False, expected True'),
    (EarlyTerminal, r'is_terminal is True in rows of members 1, 2 and 3 that'),
    (Stillborn, r'Episodes of member 0 end with their first rows'),
    (EqualSeeds, r'All 4 members draw the same random numbers'),
    (EqualAndUnseeded, r'All 4 members draw the same random numbers'),
    (OddMember, r"'place' of member 2 .*expected float32.*\(2,\).*got.*\(3,\)"),
    (OddLastRow, r"Last observation 'place' of member \d .*\(2,\).*got.*\(3,\)"),
    (WordAmongNumbers, r"'log/steps' of member 2 .*expected float32.*got object"),
    (OtherNumber, r"'place' of a vector.*expected 4 rows.*got float32 of shape \(5, 2"),
    (RewardsInColumns, r"'reward' of member 0 .*expected.*\(\), got.*\(1,\)"),
    (DeafToResets, r'reset of member 0 in mid-episode is ignored.*expected.*got'),
    (ResetsAll, r'A reset of some members begins episodes of all: members'),
    (ResetsAllSilently, r'also resets all others.*show the beginning'),
    (ResetsAllOnRequest, r'also resets members 1, 2 and 3.*expected False'),
    (NotANumber, r"Observation 'place' of member 2 .*got.*NaN"),
    (OutOfBounds, r"Last observation 'place' of member \d.*to 50, got.*99"),
    (KeyLeftOut, r"lack the keys \['place'\].*undeclared keys \['places'\]"),
    (KeyLeftOutAtTheEnd, r"Under 'final': Observations lack the keys \['place'\]"),
    (FlagLeftOutAtTheEnd, r"under 'final' lack is_last"),
    (FinalIsNoPair, r"'final' is a pair.*Got a dict"),
    (FinalOfAll, r"Expected is_last=True, got is_last=False in the row under 'final'"),
    (FinalBesideNoFirst, r'Expected is_first=True, got is_first=False in the row be'),
    (Nobody, r'different members from 0 to 3, got the members \[7'),
    (
        TerminalLimit,
        r'Members 0, 1, 2 and 1 more: All . episodes ended after 130 steps',
    ),
    (Crash, r'ZeroDivisionError: five'),
    (NoDict, r'returned a tuple, not a dict'),
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
    (ResetTwice, 'look like beginnings of episodes'),
    (Unseeded, r"same seed differ in \['place'"),
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
        (OddMember, r"Observation 'place' of member 2 .*\(2,\).*got.*\(3,\)"),
        (OtherNumber, r"'place' of a vector.*expected 4 rows.*got.*\(5, 2\)"),
        (FinalIsNoPair, r"'final' is a pair of member numbers.*Got a dict"),
        (FinalOfAll, r"got is_last=False in the row under 'final' of the members \["),
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
