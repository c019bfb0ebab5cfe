"""Crafter: an open world to survive in, with 22 achievements to unlock."""

import collections
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import elements
import numpy as np

from ...core.base import Env, Spaces
from ...core.errors import ConfigError
from ..catalog import CRAFTER
from ..extras import require
from ..spaces import act_spaces, make_obs, obs_spaces

__all__ = ['Crafter']

LARGEST_SEED = 2**31 - 1


class Crafter(Env):
    """The task `reward` pays for achievements and health, `noreward` nothing.

    `log/achievement_<name>` is 1 from the step on in which the episode has unlocked it:
    the mean of its maximum over episodes is the success rate. `log/achievements` counts
    them. Episodes end terminally by death, otherwise after `length` steps.

    action: int32 in 17. image: [size, size, 3] uint8.
    """

    def __init__(
        self, task: str, seed: int | None = None, size: int = 64, length: int = 10_000
    ) -> None:
        if task not in CRAFTER:
            raise ConfigError(f'Crafter has the tasks {CRAFTER}, not {task!r}.')
        crafter = require('crafter', 'crafter')
        self._env = crafter.Env(
            size=(size, size),
            reward=task == 'reward',
            length=length,
            # It seeds an old generator, which takes no larger ones.
            seed=None if seed is None else seed % LARGEST_SEED,
        )
        self._size = size
        self._names = tuple(crafter.constants.achievements)
        self._over = True

    @property
    def obs_space(self) -> Spaces:
        flag = elements.Space(np.float32, (), 0, 1)
        return obs_spaces(
            {
                'image': elements.Space(np.uint8, (self._size, self._size, 3)),
                'log/achievements': elements.Space(np.float32, (), 0, len(self._names)),
                **{f'log/achievement_{name}': flag for name in self._names},
            }
        )

    @property
    def act_space(self) -> Spaces:
        count = len(self._env.action_names)
        return act_spaces({'action': elements.Space(np.int32, (), 0, count)})

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        if action['reset'] or self._over:
            return self._begin()
        image, reward, done, info = self._env.step(int(action['action']))
        self._over = bool(done)
        return make_obs(
            {'image': image, **self._logs(info['achievements'])},
            reward=float(reward),
            is_last=self._over,
            is_terminal=info['discount'] == 0,
        )

    def _begin(self) -> dict[str, Any]:
        image = self._env.reset()
        self._over = False
        _sort_chunks(self._env._world)
        return make_obs({'image': image, **self._logs({})}, is_first=True)

    def _logs(self, counts: Mapping[str, int]) -> dict[str, Any]:
        unlocked = {name: np.float32(counts.get(name, 0) > 0) for name in self._names}
        return {
            'log/achievements': np.float32(sum(unlocked.values())),
            **{f'log/achievement_{name}': flag for name, flag in unlocked.items()},
        }


class _OrderedSet:
    """A set that is iterated in the order of insertion."""

    def __init__(self, members: Iterable[Any] = ()) -> None:
        self._members = dict.fromkeys(members)

    def add(self, member: Any) -> None:
        self._members[member] = None

    def remove(self, member: Any) -> None:
        del self._members[member]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._members)


def _sort_chunks(world: Any) -> None:
    """Makes episodes repeatable under a seed.

    Crafter draws creatures out of sets of objects, whose order is that of their
    addresses in memory.
    """
    order = {id(thing): index for index, thing in enumerate(world._objects)}
    sort = lambda things: sorted(things, key=lambda thing: order[id(thing)])
    chunks = {key: _OrderedSet(sort(things)) for key, things in world._chunks.items()}
    world._chunks = collections.defaultdict(_OrderedSet, chunks)
