"""Wrapping: what lies between an environment and the agent, as plain data.

A robot that is to act with a trained policy has no wrappers of ours. It needs to know
what they did to each observation on its way to the agent, and to each action on its way
back.
"""

from collections.abc import Iterator
from typing import Any

import elements
import numpy as np

from ..core import step_keys
from .adapters.codecs import Coded
from .conversion import BoundAction, ConvertArrays, is_channels_first
from .spaces import is_image, same
from .vector.functional.contract import FunctionalWrapper
from .vector.functional.for_agents import AgentSpaces, Resized
from .vector.functional.members import FunctionalVectorEnv
from .wrappers import NormalizeAction, ResizeImage, UnifyDtypes, Wrapper

__all__ = ['describe_interface']

NOT_SEEN = ('reward', 'is_first', 'is_last', 'is_terminal')
RESET = 'reset'


def describe_interface(env: Any) -> dict[str, Any]:
    """Numbers, texts, lists and dicts about an environment of `make` or `wrap`.

    observations: by key, dtype and shape of what the environment gives, and the changes
    to it in the order in which they happen, in words. actions: by key, dtype and shape
    of what the environment takes; -1 and 1 of the agent become `low` and
    `high` of a continuous action, and 0 becomes `start` where integers count from
    elsewhere. spaces: those of Gymnasium, in words.
    """
    layers = list(_layers(env))
    inner = layers[0]
    is_foreign = isinstance(inner, Coded)  # Attributes of others mean other things.
    starts = inner.starts if is_foreign else {}
    gym_env = getattr(inner, 'gym_env', None) if is_foreign else None
    return {
        'observations': {
            key: _observation(key, layers, starts.get(key))
            for key in env.obs_space
            if key not in NOT_SEEN and not step_keys.is_log(key)
        },
        'actions': {
            key: _action(key, layers, inner.act_space[key], starts.get(key))
            for key in env.act_space
            if key != RESET
        },
        'spaces': {} if gym_env is None else _spaces(gym_env),
    }


def _spaces(gym_env: Any) -> dict[str, str]:
    """Of a single environment, also where `gym_env` is a vector environment."""
    names = ('observation_space', 'action_space')
    single = lambda name: getattr(gym_env, f'single_{name}', None)
    return {name: str(single(name) or getattr(gym_env, name)) for name in names}


def _layers(env: Any) -> Iterator[Any]:
    """The environment inside of all wrappers, then the wrappers around it."""
    if isinstance(env, Wrapper | FunctionalWrapper):
        yield from _layers(env.env)
    elif isinstance(env, FunctionalVectorEnv):
        yield from _layers(env.functional)
    yield env


def _observation(key: str, layers: list[Any], start: Any) -> dict[str, Any]:
    space = layers[0].obs_space[key]
    changes = []
    if start is not None and np.any(start):
        changes.append(f'{_listed(start)} is subtracted, so that it counts from 0')
    for layer, outer in zip(layers, layers[1:], strict=False):
        before, after = layer.obs_space[key], outer.obs_space[key]
        if (before.dtype, before.shape) != (after.dtype, after.shape):
            changes.append(_change(outer, before, after))
    return {'dtype': space.dtype.name, 'shape': list(space.shape), 'changes': changes}


def _change(wrapper: Any, before: elements.Space, after: elements.Space) -> str:
    match wrapper:
        case ConvertArrays():
            return _conversion(before, after)
        case AgentSpaces() if is_image(after):
            return _conversion(before, after)
        case AgentSpaces() if before.shape != after.shape:
            return f'flattened and cast to {after.dtype.name}'
        case UnifyDtypes() | AgentSpaces():
            return f'cast to {after.dtype.name}'
        case Resized():
            return (
                f'resized: rint(jax.image.resize(x.astype("float32"), {after.shape}, '
                '"linear")).astype("uint8")'
            )
        case ResizeImage():
            height, width = after.shape[:2]
            return (
                f'resized to {height} x {width} pixels (height x width) by Pillow: '
                f'Image.fromarray(x).resize(({width}, {height}), '
                'Image.Resampling.BILINEAR); each channel by itself unless there are 3'
            )
    return (
        f'{type(wrapper).__name__} makes {after.dtype.name} {list(after.shape)} of '
        f'{before.dtype.name} {list(before.shape)}'
    )


def _conversion(before: elements.Space, after: elements.Space) -> str:
    if not is_image(after):
        return 'flattened'
    parts = []
    if before.dtype.kind == 'f':
        low, high = _listed(before.low), _listed(before.high)
        parts.append(f'scaled to uint8: rint(255 * (x - {low}) / ({high} - {low}))')
    if is_channels_first(before.shape):
        parts.append('channels moved from the first axis to the last')
    return ', '.join(parts)


def _action(
    key: str, layers: list[Any], space: elements.Space, start: Any
) -> dict[str, Any]:
    about: dict[str, Any] = {'dtype': space.dtype.name, 'shape': list(space.shape)}
    if start is not None and np.any(start):
        about['start'] = np.asarray(start).tolist()
    if space.dtype.kind == 'f':
        scaled = _before_scaling(key, layers)
        about['low'], about['high'] = scaled.low.tolist(), scaled.high.tolist()
    return about


def _before_scaling(key: str, layers: list[Any]) -> elements.Space:
    """The space of a continuous action that the agent sees as [-1, 1]."""
    space = layers[0].act_space[key]
    for layer, outer in zip(layers, layers[1:], strict=False):
        before, after = layer.act_space[key], outer.act_space[key]
        if isinstance(outer, NormalizeAction | AgentSpaces) and not same(before, after):
            return before
        if isinstance(outer, BoundAction):
            space = after
    return space


def _listed(values: Any) -> str:
    """One number if all are equal, or else all of them."""
    array = np.asarray(values)
    return str(array.flat[0] if (array == array.flat[0]).all() else array.tolist())
