"""Adapter from dm_env environments to the Env contract."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...core.errors import SpaceError
from ..extras import require
from ..spaces import (
    IMAGE_RANK,
    FixedSpaces,
    act_spaces,
    make_obs,
    obs_spaces,
    refuse_shared,
)
from .codecs import Codec, Coded, DictCodec, Direct, TupleCodec, integers
from .foreign_kinds import create

__all__ = ['FromDM']


class FromDM(Coded, FixedSpaces):
    """Any environment of the dm_env interface: an instance or a factory.

    Keys are named as in FromGym: a plain observation gets `obs_key`, by default
    `image` for uint8 of rank 3 and `vector` otherwise, a plain action gets `act_key`;
    dicts keep their own names, and lose parts that are empty. An episode that ends with
    discount 0 is terminal. `kwargs` go to the factory.
    """

    def __init__(
        self,
        env: Any | Callable[..., Any],
        obs_key: str | None = None,
        act_key: str = 'action',
        **kwargs: Any,
    ) -> None:
        require('dm_env', 'dm_env')
        self._env = create(env, kwargs, 'FromDM', 'a dm_env environment or a factory')
        self._over = True
        spec = _without_empty(self._env.observation_spec())
        self._obs = _codec(spec, obs_key or _default_key(spec), top=True)
        self._act = _codec(self._env.action_spec(), act_key, top=True)
        refuse_shared(self._obs.spaces, self._act.spaces)
        self._obs_space = obs_spaces(self._obs.spaces)
        self._act_space = act_spaces(self._act.spaces)

    @property
    def dm_env(self) -> Any:
        """The environment inside."""
        return self._env

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        if action['reset'] or self._over:
            step = self._env.reset()
        else:
            step = self._env.step(self._act.decode(action))
        self._over = bool(step.last())
        return make_obs(
            self._obs.encode(step.observation),
            reward=0.0 if step.reward is None else float(step.reward),
            is_first=bool(step.first()),
            is_last=self._over,
            is_terminal=self._over and step.discount == 0,
        )

    def close(self) -> None:
        self._env.close()


def _without_empty(spec: Any) -> Any:
    """The parts of an observation that hold something: walkers of dm_control list
    sensors that they do not have."""
    if not isinstance(spec, Mapping):
        return spec
    parts = {k: _without_empty(v) for k, v in spec.items()}
    return {k: v for k, v in parts.items() if 0 not in getattr(v, 'shape', ())}


def _default_key(spec: Any) -> str:
    if isinstance(spec, (tuple, list)):
        return 'obs'
    return 'image' if _is_image(spec) else 'vector'


def _is_image(spec: Any) -> bool:
    return getattr(spec, 'dtype', None) == np.uint8 and len(spec.shape) == IMAGE_RANK


def _codec(spec: Any, name: str, top: bool = False) -> Codec:
    """Codec of a spec called `name`; a dict at the top gives its keys no prefix."""
    if isinstance(spec, Mapping):
        prefix = '' if top else f'{name}/'
        return DictCodec({k: _codec(v, f'{prefix}{k}') for k, v in spec.items()})
    if isinstance(spec, (tuple, list)):
        return TupleCodec([_codec(v, f'{name}/{i}') for i, v in enumerate(spec)])
    kind = np.dtype(spec.dtype).kind
    if kind == 'f':
        bounds = _bounds(spec)
        return Direct(name, spec.dtype, spec.shape, *bounds)
    if kind == 'b' or _is_image(spec):
        return Direct(name, spec.dtype, spec.shape)
    if kind in 'iu':
        low, high = _bounds(spec)
        if low is None:
            info = np.iinfo(spec.dtype)
            low, high = np.full(spec.shape, info.min), np.full(spec.shape, info.max)
        return integers(name, low, high, spec.dtype)
    raise SpaceError(
        f'{name!r} is a {type(spec).__name__} of dtype {spec.dtype}, which agents '
        f'cannot take. Supported are floats, bounded integers and booleans.'
    )


def _bounds(spec: Any) -> tuple[Any, Any]:
    """Lowest and highest values in the shape of the spec, None where there are none."""
    if not hasattr(spec, 'minimum'):
        return None, None
    return (
        np.broadcast_to(spec.minimum, spec.shape),
        np.broadcast_to(spec.maximum, spec.shape),
    )
