"""Vector environments in which the checker must not find faults."""

import numpy as np
from walkers import SameStep, Walkers


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
