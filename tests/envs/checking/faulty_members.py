"""Vector environments with one planted fault each."""

import elements
import numpy as np
from walkers import SameStep, Walkers


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
