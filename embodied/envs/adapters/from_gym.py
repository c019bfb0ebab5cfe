"""Adapter from Gymnasium environments to the Env contract."""

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces as gym_spaces

from ...core.errors import ConfigError, MissingExtraError, SpaceError
from ..spaces import (
    IMAGE_RANK,
    FixedSpaces,
    act_spaces,
    make_obs,
    obs_spaces,
    refuse_shared,
)
from .codecs import Codec, Coded, DictCodec, Direct, TupleCodec, integers
from .foreign_kinds import create, read_reset, read_reward, read_step, refuse
from .infos import Infos
from .own import PACKAGES, import_user

__all__ = ['FromGym', 'codecs_of', 'create_by_id']


class FromGym(Coded, FixedSpaces):
    """Any Gymnasium environment: an instance, a registered id or a factory.

    A plain observation gets the key `obs_key`, by default `image` for uint8 of rank 3
    and `vector` otherwise; a plain action gets `act_key`. Dicts keep their own names,
    nested ones joined by `/`; parts of tuples are numbered, as in `action/0`. The
    first reset is seeded; later episodes continue its random numbers. `log` names
    numbers in the infos that become keys `log/...`, for logging only; other infos are
    dropped. `kwargs` go to `gymnasium.make` or the factory.
    """

    def __init__(
        self,
        env: gymnasium.Env | str | Callable[..., gymnasium.Env],
        obs_key: str | None = None,
        act_key: str = 'action',
        seed: int | None = None,
        log: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        self._env = _create(env, kwargs)
        refuse(self._env)
        self._name = type(getattr(self._env, 'unwrapped', self._env)).__name__
        self._infos = Infos(log)
        self._seed = seed
        self._over = True
        self._obs, self._act = codecs_of(
            self._env.observation_space, self._env.action_space, obs_key, act_key
        )
        self._obs_space = {**obs_spaces(self._obs.spaces), **self._infos.spaces}
        self._act_space = act_spaces(self._act.spaces)

    @property
    def gym_env(self) -> gymnasium.Env:
        """The environment inside."""
        return self._env

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        if action['reset'] or self._over:
            return self._reset()
        result = self._env.step(self._act.decode(action))
        obs, reward, terminated, truncated, info = read_step(self._name, result)
        self._over = bool(terminated or truncated)
        return make_obs(
            {**self._obs.encode(obs), **self._infos(info, self._over)},
            reward=read_reward(self._name, reward),
            is_last=self._over,
            is_terminal=bool(terminated),
        )

    def _reset(self) -> dict[str, Any]:
        result = self._env.reset(seed=self._seed)
        obs, info = read_reset(self._name, result)
        self._seed = None
        self._over = False
        return make_obs({**self._obs.encode(obs), **self._infos(info)}, is_first=True)

    def close(self) -> None:
        self._env.close()


def _create(env: Any, kwargs: dict[str, Any]) -> gymnasium.Env:
    if isinstance(env, str):
        return create_by_id(env, kwargs)
    return create(env, kwargs, 'FromGym', 'a Gymnasium environment, an id or a factory')


def codecs_of(
    observations: gym_spaces.Space,
    actions: gym_spaces.Space,
    obs_key: str | None,
    act_key: str,
) -> tuple[Codec, Codec]:
    """Codecs of the spaces of one environment, with the names that FromGym gives."""
    obs = _codec(observations, obs_key or _default_key(observations), top=True)
    act = _codec(actions, act_key, top=True)
    refuse_shared(obs.spaces, act.spaces)
    return obs, act


def create_by_id(name: str, kwargs: dict[str, Any]) -> gymnasium.Env:
    """The environment of a registered id."""
    _import_namespace(name)
    try:
        # The checker of Gymnasium only warns; CheckSpaces is strict and names keys.
        return gymnasium.make(name, disable_env_checker=True, **kwargs)
    except (gymnasium.error.DependencyNotInstalled, ModuleNotFoundError) as error:
        raise MissingExtraError(
            f'The Gymnasium environment {name!r} needs a package: {error}'
        ) from error
    except gymnasium.error.Error as error:
        close = difflib.get_close_matches(name, gymnasium.registry, n=3)
        hint = f' Closest ids: {", ".join(close)}.' if close else ''
        raise ConfigError(
            f'Gymnasium cannot make {name!r}.{hint} It says: {error}'
        ) from error


def _import_namespace(name: str) -> None:
    """Imports `package` for the id `package/Name-v0`, which registers its ids then."""
    namespace, slash, _ = name.partition('/')
    known = any(known.startswith(f'{namespace}/') for known in gymnasium.registry)
    if slash and not known and ':' not in namespace:
        import_user(PACKAGES.get(namespace, namespace))


def _default_key(space: gym_spaces.Space) -> str:
    if isinstance(space, gym_spaces.Tuple):
        return 'obs'
    return 'image' if _is_image(space) else 'vector'


def _is_image(space: gym_spaces.Space) -> bool:
    return (
        isinstance(space, gym_spaces.Box)
        and space.dtype == np.uint8
        and len(space.shape) == IMAGE_RANK
    )


def _codec(space: gym_spaces.Space, name: str, top: bool = False) -> Codec:
    """Codec of a space called `name`; a dict at the top gives its keys no prefix."""
    match space:
        case gym_spaces.Dict():
            prefix = '' if top else f'{name}/'
            return DictCodec({k: _codec(v, f'{prefix}{k}') for k, v in space.items()})
        case gym_spaces.Tuple():
            parts = enumerate(space.spaces)
            return TupleCodec([_codec(v, f'{name}/{i}') for i, v in parts])
        case gym_spaces.Box():
            return _box(space, name)
        case gym_spaces.Discrete():
            last = space.start + space.n - 1
            return integers(name, space.start, last, space.dtype)
        case gym_spaces.MultiDiscrete():
            last = space.start + space.nvec - 1
            return integers(name, space.start, last, space.dtype)
        case gym_spaces.MultiBinary():
            zeros = np.zeros(space.shape, np.int64)
            return integers(name, zeros, zeros + 1, space.dtype)
    raise SpaceError(
        f'{name!r} is a {type(space).__name__} space, which agents cannot take. '
        f'Supported are Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple.'
    )


def _box(space: gym_spaces.Box, name: str) -> Codec:
    if _is_image(space):
        return Direct(name, np.uint8, space.shape)
    if np.issubdtype(space.dtype, np.floating):
        return Direct(name, space.dtype, space.shape, space.low, space.high)
    return integers(name, space.low, space.high, space.dtype)
