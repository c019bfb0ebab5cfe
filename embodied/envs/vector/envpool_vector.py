"""EnvPool: environments that step in threads of C++."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from ...core.errors import ConfigError
from ..extras import require
from .gymnasium_vector import FromGymnasiumVector
from .seeds import Seeds, member_seeds

__all__ = ['from_pool', 'make_pool']

LARGEST_SEED = 2**31 - 1


class MaskedPool(gymnasium.vector.VectorEnv):
    """A pool of EnvPool in Gymnasium's form, with `options['reset_mask']`.

    The pool is made with env_type='gymnasium' and without a batch_size, so that all
    members step at once. Its infos lose what EnvPool itself counts.
    """

    def __init__(self, pool: Any) -> None:
        if not hasattr(pool, 'single_observation_space'):
            raise ConfigError(
                f"{type(pool).__name__} has another interface than Gymnasium's. Make "
                f"the pool with env_type='gymnasium'."
            )
        config = pool.config
        if config['batch_size'] != config['num_envs']:
            raise ConfigError(
                f'A pool of {config["num_envs"]} environments steps '
                f'{config["batch_size"]} at a time. Make it without batch_size.'
            )
        self._pool = pool
        self.num_envs = config['num_envs']
        self.metadata = {'autoreset_mode': gymnasium.vector.AutoresetMode.NEXT_STEP}
        batch = gymnasium.vector.utils.batch_space
        self.single_observation_space = _without_extremes(pool.observation_space)
        self.observation_space = batch(self.single_observation_space, self.num_envs)
        self.single_action_space = pool.action_space
        self.action_space = batch(pool.action_space, self.num_envs)

    def reset(
        self, *, seed: Any = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        # The pool has got its seeds when it was made.
        mask = (options or {}).get('reset_mask')
        if mask is None:
            obs, info = self._pool.reset()
            return obs, _plain(info)
        members = np.flatnonzero(mask).astype(np.int32)
        obs, info = self._pool.reset(members)
        order = info['env_id']
        return self._spread(obs, order), self._spread(_plain(info), order)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self._pool.step(actions)
        return obs, reward, terminated, truncated, _plain(info)

    def close_extras(self, **kwargs: Any) -> None:
        self._pool.close()

    def _spread(self, tree: Any, members: np.ndarray) -> Any:
        """Rows of some members at their places among those of all."""
        if isinstance(tree, Mapping):
            return {key: self._spread(value, members) for key, value in tree.items()}
        if isinstance(tree, tuple):
            return tuple(self._spread(value, members) for value in tree)
        rows = np.zeros((self.num_envs, *tree.shape[1:]), tree.dtype)
        rows[members] = tree
        return rows


def from_pool(pool: Any, log: Sequence[str] = ()) -> FromGymnasiumVector:
    """A pool that was made with env_type='gymnasium' and has got its seeds."""
    return FromGymnasiumVector(MaskedPool(pool), log=log, masked=True)


def make_pool(
    name: str,
    seed: Seeds = None,
    num: int = 16,
    threads: int = 0,
    log: Sequence[str] = (),
) -> FromGymnasiumVector:
    """The pool of `num` environments of the id `name`."""
    envpool = require('envpool', 'envpool')
    known = envpool.list_all_envs()
    if name not in known:
        close = difflib.get_close_matches(name, known, n=3)
        hint = f' Closest ids: {", ".join(close)}.' if close else ''
        raise ConfigError(
            f'EnvPool has no environment {name!r}.{hint} '
            f'envpool.list_all_envs() lists all {len(known)} of them.'
        )
    seeds = [x % LARGEST_SEED for x in member_seeds(seed, num) or _random(num)]
    # Agents with a memory need no stack of frames.
    stacks = hasattr(envpool.make_spec(name).config, 'stack_num')
    pool = envpool.make(
        name,
        env_type='gymnasium',
        num_envs=num,
        seed=seeds,
        num_threads=threads,
        **({'stack_num': 1} if stacks else {}),
    )
    return from_pool(pool, log)


def _without_extremes(space: gymnasium.Space) -> gymnasium.Space:
    """The space without the bounds that EnvPool makes up where there are none.

    These are the smallest positive and the largest number of the dtype.
    """
    if isinstance(space, gymnasium.spaces.Dict):
        parts = {key: _without_extremes(part) for key, part in space.items()}
        return gymnasium.spaces.Dict(parts)
    if not isinstance(space, gymnasium.spaces.Box) or space.dtype.kind != 'f':
        return space
    limits = np.finfo(space.dtype)
    low = np.where(space.low == limits.tiny, -np.inf, space.low)
    high = np.where(space.high == limits.max, np.inf, space.high)
    return gymnasium.spaces.Box(low, high, space.shape, space.dtype)


def _random(num: int) -> list[int]:
    return np.random.SeedSequence().generate_state(num).tolist()


def _plain(info: Mapping[str, Any]) -> dict[str, Any]:
    """The infos of the task."""
    own = ('env_id', 'players')
    return {key: value for key, value in info.items() if key not in own}
