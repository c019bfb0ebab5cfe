"""A vector environment for tests, sound by itself; faulty ones change one thing."""

import elements
import numpy as np

import embodied

NOISE = 0.1


class Walkers(embodied.VectorEnv):
    """Members walk away from the origin, with noise, and end after 8 to 12 steps.

    final: members whose episode ends begin the next one in the same step, so that their
    last rows come beside the others. noise 0 makes everything deterministic.
    """

    obs_space = {
        'place': elements.Space(np.float32, (2,), -50, 50),
        'log/steps': elements.Space(np.float32),
        'reward': elements.Space(np.float32),
        'is_first': elements.Space(bool),
        'is_last': elements.Space(bool),
        'is_terminal': elements.Space(bool),
    }
    act_space = {
        'push': elements.Space(np.float32, (2,), -1, 1),
        'reset': elements.Space(bool),
    }
    final = False
    num = 4
    noise = NOISE
    shortest = 8

    def __init__(self, seed=0):
        self.random = [np.random.default_rng(x) for x in self.seeds(seed)]
        self.place = np.zeros((self.num, 2), np.float32)
        self.steps = np.zeros(self.num, int)
        self.goal = np.zeros(self.num, int)
        self.over = np.ones(self.num, bool)

    def seeds(self, seed):
        return [seed + member for member in range(self.num)]

    def step(self, actions):
        reset = self.to_begin(actions['reset'])
        for member in range(self.num):
            if reset[member]:
                self.begin(member)
            else:
                self.move(member, actions['push'][member])
        last = ~reset & (self.steps >= self.goal)
        rows = self.rows(reset, last)
        self.over = last
        if not self.final or not last.any():
            return rows
        return self.begin_again(rows, np.flatnonzero(last))

    def to_begin(self, reset):
        """Which members begin an episode, of those that are to do so."""
        return reset | self.over

    def begin(self, member):
        self.place[member] = self.noise * self.random[member].normal(size=2)
        self.steps[member] = 0
        spread = int(self.random[member].integers(5)) if self.noise else member % 3
        self.goal[member] = self.shortest + spread

    def move(self, member, push):
        noise = self.noise * self.random[member].normal(size=2)
        self.place[member] += 0.5 + 0.1 * push + noise
        self.steps[member] += 1

    def rows(self, first, last):
        return {
            'place': self.place.copy(),
            'log/steps': self.steps.astype(np.float32),
            'reward': np.where(first, 0, 1).astype(np.float32),
            'is_first': first.copy(),
            'is_last': last.copy(),
            'is_terminal': last.copy(),
        }

    def begin_again(self, rows, ended):
        """Rows of all, with first ones of these members, whose last ones are aside."""
        final = {k: v[ended] for k, v in rows.items()}
        for member in ended:
            self.begin(member)
        first = np.isin(np.arange(self.num), ended)
        self.over = np.zeros(self.num, bool)
        now = self.rows(first | rows['is_first'], np.zeros(self.num, bool))
        return {**now, 'final': (ended, final)}

    def close(self):
        pass


class SameStep(Walkers):
    final = True
