"""Wrappers that bring functional environments into the form that agents take.

They are part of the compiled program, so that small arrays leave the device.
"""

from collections.abc import Mapping
from typing import Any

import elements
import numpy as np

from ....core.errors import ConfigError
from ....core.step_keys import is_log
from ...conversion import conversions_of
from ...spaces import IMAGE_RANK, is_image, unify
from .contract import FunctionalEnv, FunctionalWrapper, Transition, import_jax
from .foreign_spaces import is_picture

__all__ = ['AgentSpaces', 'Resized', 'TimeLimited', 'for_agents']

UNBOUNDED = 1e30  # Libraries write the largest number of a dtype for infinity.


def for_agents(env: FunctionalEnv, size: int = 0, length: int = 0) -> FunctionalEnv:
    """The environment with dtypes, images and actions as agents take them.

    size: pixels per side of images, length: time limit in steps; 0 leaves each alone.
    """
    env = AgentSpaces(env)
    if size:
        env = Resized(env, size)
    return TimeLimited(env, length) if length else env


class AgentSpaces(FunctionalWrapper):
    """float32 for floats, int32 for integers, pictures as ConvertArrays makes them.

    Arrays of rank 3 that are smaller than pictures are flattened. Floats lose their
    bounds, which libraries do not always keep. Continuous actions with finite bounds
    are in [-1, 1] and clipped.
    """

    def __init__(self, env: FunctionalEnv) -> None:
        super().__init__(env)
        _, self._jnp = import_jax()
        grids = {k: v for k, v in env.obs_space.items() if _is_grid(k, v)}
        spaces = {**env.obs_space, **{k: _flat(v) for k, v in grids.items()}}
        self._grids = frozenset(grids)
        self._conversions = conversions_of(spaces)
        converted = {k: x.space for k, x in self._conversions.items()}
        spaces = {**spaces, **converted}
        self.obs_space = {k: _unbounded(unify(v)) for k, v in spaces.items()}
        self._bounds: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for key, space in env.act_space.items():
            self.act_space[key] = unify(space)
            if space.dtype.kind == 'f' and _is_bounded(space):
                self._bounds[key] = (space.low, space.high)
                self.act_space[key] = elements.Space(np.float32, space.shape, -1, 1)

    def change_action(self, action: Mapping[str, Any]) -> dict[str, Any]:
        jnp = self._jnp
        native = dict(action)
        for key, (low, high) in self._bounds.items():
            value = jnp.clip(action[key], -1, 1)
            native[key] = low * (1 - value) / 2 + high * (1 + value) / 2
        spaces = self.env.act_space
        return {k: jnp.asarray(v).astype(spaces[k].dtype) for k, v in native.items()}

    def change_obs(self, obs: dict[str, Any]) -> dict[str, Any]:
        changed = {}
        for key, space in self.obs_space.items():
            value = self._jnp.asarray(obs[key])
            if key in self._grids:
                value = value.reshape(-1)
            if key in self._conversions:
                value = self._conversions[key].apply(value, xp=self._jnp)
            changed[key] = value.astype(space.dtype)
        return changed


class Resized(FunctionalWrapper):
    """Resizes images to `size` pixels per side, bilinear with smoothing."""

    def __init__(self, env: FunctionalEnv, size: int) -> None:
        super().__init__(env)
        self._jax, self._jnp = import_jax()
        self._shapes = {
            key: (size, size, space.shape[-1])
            for key, space in env.obs_space.items()
            if is_image(space) and space.shape[:2] != (size, size)
        }
        for key, shape in self._shapes.items():
            self.obs_space[key] = elements.Space(np.uint8, shape)

    def change_obs(self, obs: dict[str, Any]) -> dict[str, Any]:
        resized = {key: self._resize(obs[key], x) for key, x in self._shapes.items()}
        return {**obs, **resized}

    def _resize(self, image: Any, shape: tuple[int, ...]) -> Any:
        floats = image.astype(self._jnp.float32)
        floats = self._jax.image.resize(floats, shape, 'linear')
        return self._jnp.rint(self._jnp.clip(floats, 0, 255)).astype(np.uint8)


class TimeLimited(FunctionalWrapper):
    """Ends episodes after `length` steps: is_last, but not is_terminal."""

    def __init__(self, env: FunctionalEnv, length: int) -> None:
        super().__init__(env)
        if length < 1:
            raise ConfigError(f'A time limit needs length >= 1, got {length}.')
        _, self._jnp = import_jax()
        self._length = length

    def init(self, key: Any) -> tuple[Any, dict[str, Any]]:
        state, obs = self.env.init(key)
        return (state, self._jnp.zeros((), self._jnp.int32)), obs

    def transition(self, key: Any, state: Any, action: Mapping[str, Any]) -> Transition:
        inner, count = state
        inner, obs, reward, is_last, is_terminal = self.env.transition(
            key, inner, action
        )
        count = count + 1
        is_last = is_last | (count >= self._length)
        return (inner, count), obs, reward, is_last, is_terminal


def _is_grid(key: str, space: elements.Space) -> bool:
    rank = len(space.shape)
    return rank == IMAGE_RANK and not is_picture(space.shape) and not is_log(key)


def _flat(space: elements.Space) -> elements.Space:
    low, high = space.low.reshape(-1), space.high.reshape(-1)
    return elements.Space(space.dtype, low.shape, low, high)


def _is_bounded(space: elements.Space) -> bool:
    return bool(max(np.abs(space.low).max(), np.abs(space.high).max()) < UNBOUNDED)


def _unbounded(space: elements.Space) -> elements.Space:
    if space.dtype.kind != 'f':
        return space
    return elements.Space(space.dtype, space.shape)
