"""Wrappers: change one thing about an environment and pass the rest through.

Most take single environments and vector environments alike: their values have no
leading dimension, or one of members.
"""

from collections.abc import Mapping
from typing import Any

import elements
import numpy as np
from PIL import Image

from ..core.base import Env, Spaces
from ..core.errors import ConfigError, SpaceError
from .spaces import IMAGE_RANK, Checker, FixedSpaces, is_image, unify
from .vector.rows import members_of, on_rows, split_final

__all__ = [
    'ActionRepeat',
    'CheckSpaces',
    'ClipAction',
    'NormalizeAction',
    'ResizeImage',
    'TimeLimit',
    'UnifyDtypes',
    'Wrapper',
    'resize',
]


class Wrapper(Env):
    """Passes everything through; subclasses override what they change.

    `change_action` and `change_obs` get values of one environment, or of all members
    of a vector environment; a subclass that overrides `step` takes single ones only.
    `save` and `load` exist if the inner environment has them. A wrapper with state
    of its own overrides `_save` and `_load`.
    """

    def __init__(self, env: Any) -> None:
        self.env = env

    @property
    def obs_space(self) -> Spaces:
        return self.env.obs_space

    @property
    def act_space(self) -> Spaces:
        return self.env.act_space

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        return on_rows(self.change_obs, self.env.step(self.change_action(action)))

    def change_action(self, action: Mapping[str, Any]) -> Mapping[str, Any]:
        """The action that the inner environment gets."""
        return action

    def change_obs(self, obs: dict[str, Any]) -> dict[str, Any]:
        """The observation that the outside gets."""
        return obs

    def close(self) -> None:
        self.env.close()

    def _save(self) -> Any:
        return self.env.save()

    def _load(self, data: Any) -> None:
        self.env.load(data)

    def __getattr__(self, name: str) -> Any:
        # Without `env` there is nothing to ask yet: copy and pickle look before it
        # is set.
        if name == 'env' or name.startswith('__'):
            raise AttributeError(f"'{type(self).__name__}' has no attribute '{name}'")
        value = getattr(self.env, name)
        return {'save': self._save, 'load': self._load}.get(name, value)

    def __repr__(self) -> str:
        return f'{type(self).__name__}({self.env!r})'


class NormalizeAction(Wrapper):
    """Lets the agent act in [-1, 1] where the action has finite bounds."""

    def __init__(self, env: Any, key: str = 'action') -> None:
        super().__init__(env)
        self._key = key
        self._space = _continuous(env, key, 'NormalizeAction')
        low, high = self._space.low, self._space.high
        self._finite = np.isfinite(low) & np.isfinite(high)
        self._low = np.where(self._finite, low, 0)
        self._high = np.where(self._finite, high, 0)

    @property
    def act_space(self) -> Spaces:
        low = np.where(self._finite, -1, self._space.low)
        high = np.where(self._finite, 1, self._space.high)
        space = elements.Space(self._space.dtype, self._space.shape, low, high)
        return {**self.env.act_space, self._key: space}

    def change_action(self, action: Mapping[str, Any]) -> dict[str, Any]:
        value = np.asarray(action[self._key], np.float64)
        # low (1 - a) / 2 + high (1 + a) / 2, which meets both bounds exactly.
        scaled = self._low * (1 - value) / 2 + self._high * (1 + value) / 2
        value = np.where(self._finite, scaled, value).astype(self._space.dtype)
        return {**action, self._key: value}


class ClipAction(Wrapper):
    """Clips a continuous action, because policies sample beyond the bounds."""

    def __init__(
        self, env: Any, key: str = 'action', low: Any = -1, high: Any = 1
    ) -> None:
        super().__init__(env)
        self._key = key
        self._dtype = _continuous(env, key, 'ClipAction').dtype
        self._low = np.asarray(low, self._dtype)
        self._high = np.asarray(high, self._dtype)

    def change_action(self, action: Mapping[str, Any]) -> dict[str, Any]:
        value = np.asarray(action[self._key], self._dtype)
        return {**action, self._key: np.clip(value, self._low, self._high)}


class UnifyDtypes(FixedSpaces, Wrapper):
    """Makes floats float32 and integers int32; keeps uint8 and bool.

    Actions are cast back on the way in. A value that cannot be cast without losing
    its meaning is passed on as it is, for `CheckSpaces` to name it.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self._obs_space = {k: unify(v) for k, v in env.obs_space.items()}
        self._act_space = {k: unify(v) for k, v in env.act_space.items()}
        self._foreign = {
            k: v
            for k, v in env.act_space.items()
            if v.dtype != self._act_space[k].dtype
        }

    def change_action(self, action: Mapping[str, Any]) -> dict[str, Any]:
        native = {k: _restore(action[k], v) for k, v in self._foreign.items()}
        return {**action, **native}

    def change_obs(self, obs: dict[str, Any]) -> dict[str, Any]:
        return {
            k: _cast(v, self._obs_space[k].dtype) if k in self._obs_space else v
            for k, v in obs.items()
        }


class CheckSpaces(Wrapper):
    """Raises a SpaceError when an observation or action leaves its space."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self._obs_checks = {k: Checker(v) for k, v in env.obs_space.items()}
        self._act_checks = {k: Checker(v) for k, v in env.act_space.items()}
        members = members_of(env)
        self._members = np.arange(members) if members else None

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        _check_keys('Action', action, self._act_checks)
        if self._members is not None:
            return self._step_members(action, self._members)
        if not action['reset']:  # The other keys mean nothing on reset.
            _check_values('Action', action, self._act_checks)
        obs = self.env.step(action)
        _check_keys('Observation', obs, self._obs_checks)
        _check_values('Observation', obs, self._obs_checks)
        return obs

    def _step_members(
        self, actions: Mapping[str, Any], members: np.ndarray
    ) -> dict[str, Any]:
        reset = actions['reset']
        if reset.any():
            used = {k: v[~reset] for k, v in actions.items()}
            _check_members('Action', used, self._act_checks, members[~reset])
        else:
            _check_members('Action', actions, self._act_checks, members)
        obs = self.env.step(actions)
        rows, final = split_final(obs)
        _check_keys('Observation', rows, self._obs_checks)
        _check_members('Observation', rows, self._obs_checks, members)
        if final is not None:
            _check_keys('Last observation', final.rows, self._obs_checks)
            checks = self._obs_checks
            _check_members('Last observation', final.rows, checks, final.members)
        return obs


class ActionRepeat(Wrapper):
    """Takes the same action several times; rewards add up, the episode's end stops."""

    def __init__(self, env: Any, repeat: int) -> None:
        super().__init__(env)
        if repeat < 1:
            raise ConfigError(f'ActionRepeat needs repeat >= 1, got {repeat}.')
        self._repeat = repeat

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        obs = self.env.step(action)
        if obs['is_first']:
            return obs
        reward = obs['reward']
        for _ in range(self._repeat - 1):
            if obs['is_last']:
                break
            obs = self.env.step(action)
            reward = reward + obs['reward']
        return {**obs, 'reward': reward}


class TimeLimit(Wrapper):
    """Ends episodes after `duration` steps: is_last, but not is_terminal.

    With `reset=False` the environment itself is not reset at such an end: the next
    episode continues from where it is.
    """

    def __init__(self, env: Any, duration: int, reset: bool = True) -> None:
        super().__init__(env)
        if duration < 1:
            raise ConfigError(f'TimeLimit needs duration >= 1, got {duration}.')
        self._duration = duration
        self._reset = reset
        self._count = 0
        self._over = True
        self._inner_over = True

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        if action['reset'] or self._over:
            return self._begin(action)
        obs = self.env.step({**action, 'reset': False})
        self._count += 1
        self._inner_over = bool(obs['is_last'])
        self._over = self._inner_over or self._count >= self._duration
        return {**obs, 'is_last': np.bool_(self._over)}

    def _begin(self, action: Mapping[str, Any]) -> dict[str, Any]:
        limit_reached = self._over and not self._inner_over
        self._count = 0
        if self._reset or not limit_reached:
            obs = self.env.step({**action, 'reset': True})
        else:
            obs = {
                **self.env.step({**action, 'reset': False}),
                'is_first': np.bool_(True),
            }
        self._inner_over = self._over = bool(obs['is_last'])
        return obs

    def _save(self) -> Any:
        state = (self._count, self._over, self._inner_over)
        return {'limit': state, 'env': self.env.save()}

    def _load(self, data: Any) -> None:
        self._count, self._over, self._inner_over = data['limit']
        self.env.load(data['env'])


class ResizeImage(Wrapper):
    """Resizes every image (uint8 of rank 3) to `size`, bilinear by Pillow."""

    def __init__(self, env: Any, size: int | tuple[int, int]) -> None:
        super().__init__(env)
        self._size = (size, size) if isinstance(size, int) else tuple(size)
        if len(self._size) != 2 or min(self._size) < 1:
            raise ConfigError(f'ResizeImage needs a size or (height, width): {size}.')
        self._keys = [
            k
            for k, v in env.obs_space.items()
            if is_image(v) and v.shape[:2] != self._size
        ]

    @property
    def obs_space(self) -> Spaces:
        spaces = dict(self.env.obs_space)
        for key in self._keys:
            shape = (*self._size, spaces[key].shape[-1])
            spaces[key] = elements.Space(np.uint8, shape)
        return spaces

    def change_obs(self, obs: dict[str, Any]) -> dict[str, Any]:
        return {**obs, **{k: resize(obs[k], self._size) for k in self._keys}}


def resize(image: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    """Images [..., H, W, C] of another height and width."""
    if image.ndim > IMAGE_RANK:
        return np.stack([resize(x, size) for x in image])
    height, width = size
    # Pillow reads other channel counts as masks or transparency, so those
    # channels go one by one.
    layers = [image] if image.shape[-1] == 3 else np.moveaxis(image, -1, 0)
    resized = [
        np.asarray(
            Image.fromarray(layer).resize((width, height), Image.Resampling.BILINEAR)
        )
        for layer in layers
    ]
    return resized[0] if image.shape[-1] == 3 else np.stack(resized, -1)


def _continuous(env: Any, key: str, wrapper: str) -> elements.Space:
    space = env.act_space.get(key)
    if space is None or space.dtype.kind != 'f':
        floats = [k for k, v in env.act_space.items() if v.dtype.kind == 'f']
        raise SpaceError(
            f'{wrapper} got the action key {key!r}, which is not continuous. '
            f'Continuous action keys here: {floats}.'
        )
    return space


def _restore(value: Any, space: elements.Space) -> np.ndarray:
    """The value in the dtype of `space`, within bounds that rounding may break."""
    value = np.asarray(value)
    if space.dtype.kind == 'f':
        value = np.clip(value, space.low, space.high)
    return value.astype(space.dtype)


def _cast(value: Any, dtype: np.dtype) -> Any:
    value = np.asarray(value)
    if value.dtype == dtype or not np.can_cast(value.dtype, dtype, 'same_kind'):
        return value
    cast = value.astype(dtype)
    fits = dtype.kind not in 'iu' or (cast == value).all()
    return cast if fits else value


def _check_keys(what: str, got: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    if got.keys() == expected.keys():
        return
    missing = sorted(expected.keys() - got.keys())
    extra = sorted(got.keys() - expected.keys())
    raise SpaceError(
        f'{what} keys differ from the declared space: missing {missing}, '
        f'not declared {extra}. Declared are {sorted(expected)}.'
    )


def _check_values(
    what: str, got: Mapping[str, Any], checks: Mapping[str, Checker]
) -> None:
    for key, check in checks.items():
        if not check.fits(got[key]):
            raise check.error(f'{what} {key!r}', got[key])


def _check_members(
    what: str,
    got: Mapping[str, Any],
    checks: Mapping[str, Checker],
    members: np.ndarray,
) -> None:
    """Checks rows [n, ...] of these members."""
    count = len(members)
    for key, check in checks.items():
        value = got[key]
        if check.fits(value, count):
            continue
        if np.shape(value)[:1] != (count,):
            raise SpaceError(
                f'{what} {key!r} of a vector environment needs one row per member: '
                f'expected {count} rows, got the shape {np.shape(value)}.'
            )
        wrong = next(i for i in range(count) if not check.fits(value[i]))
        raise check.error(f'{what} {key!r} of member {members[wrong]}', value[wrong])
