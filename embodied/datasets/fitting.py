"""Fitting: brings recorded episodes into the spaces of an agent, or refuses them."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import elements
import numpy as np

from ..core.base import Array, Batch, Spaces
from ..core.errors import ReplayError, SpaceError
from ..core.step_keys import is_latent, is_log
from ..envs.spaces import (
    RESERVED,
    Checker,
    act_spaces,
    describe,
    is_image,
    obs_spaces,
    unify,
)
from ..envs.wrappers import resize
from .completing import DERIVED, complete, missing_reward
from .source import Source

__all__ = ['Fitting', 'spaces_of']

ACTION = 'action'  # and action/...: keys that are actions where nothing else says so


class Fitting:
    """Episodes as an agent with the given spaces takes them.

    obs, act: of the agent, without `log/` keys and `reset`. latents: of its states;
    zeros where a source has none that fit. whose: what the spaces are of, for messages.
    use_latents: whether states in the data can be those of this agent.
    """

    def __init__(
        self,
        obs: Spaces,
        act: Spaces,
        latents: Spaces,
        whose: str,
        use_latents: bool = False,
    ):
        self._spaces = {**obs, **act}
        self._latents = dict(latents)
        self._whose = whose
        self._use_latents = use_latents
        # Policies sample beyond the bounds of continuous actions.
        self._checks = {
            key: Checker(_unbounded(space) if key in act else space)
            for key, space in self._spaces.items()
        }

    def check(self, source: Source) -> list[str]:
        """Refuses data whose keys, dtypes or shapes do not fit; returns what a person
        has to know about those that do."""
        if 'reward' not in source.spaces:
            raise missing_reward(source.name, source.spaces)
        wrong = [
            f'  {key}: {_shown(space)} in {self._whose}, '
            f'{_shown(source.spaces.get(key))} in {source.name}'
            for key, space in self._spaces.items()
            if key not in DERIVED and not self._fits(source, key, space)
        ]
        if wrong:
            lines = '\n'.join(wrong)
            raise SpaceError(
                f'The data in {source.name} do not fit {self._whose}:\n{lines}\n'
                'Name the task that they were recorded in, with the same options of '
                'the environment, or other data.'
            )
        notes = []
        if 'is_terminal' not in source.spaces:
            notes.append(
                f"{source.name} has no key 'is_terminal': its episodes count as cut "
                'off, so that the value does not end with them.'
            )
        return notes

    def episodes(self, sources: Iterable[Source]) -> Iterator[Batch]:
        """All keys of a step, [n, ...] each, of one episode after the other."""
        for source in sources:
            latents = self._latents_in(source)
            for episode in source.episodes([*self._spaces, *latents]):
                values = complete(episode)
                steps = {
                    key: self._convert(episode.name, key, values[key])
                    for key in self._spaces
                }
                rows = len(steps['is_first'])
                states = {
                    key: values[key].astype(space.dtype, copy=False)
                    if key in latents
                    else np.zeros((rows, *space.shape), space.dtype)
                    for key, space in self._latents.items()
                }
                yield {**steps, **states}

    def _latents_in(self, source: Source) -> list[str]:
        """Keys of the states in the data, if all of them fit."""
        there = {key: source.spaces.get(key) for key in self._latents}
        fit = all(
            x is not None and (x.dtype, x.shape) == (y.dtype, y.shape)
            for x, y in zip(there.values(), self._latents.values(), strict=True)
        )
        return list(there) if fit and self._use_latents else []

    def _fits(self, source: Source, key: str, space: elements.Space) -> bool:
        found = source.spaces.get(key)
        if found is None:
            return False
        shape = found.shape
        if source.is_raw and is_image(found) and is_image(space):
            shape = (*space.shape[:2], found.shape[-1])  # they are resized
        return shape == space.shape and _castable(found.dtype, space.dtype)

    def _convert(self, name: str, key: str, value: Array) -> Array:
        space = self._spaces[key]
        if value.shape[1:] != space.shape:
            value = resize(value, space.shape[:2])
        cast = value.astype(space.dtype, copy=False)
        check = self._checks[key]
        wrapped = _has_wrapped(value, cast)
        if wrapped or not check.fits(cast, len(cast)):
            error = check.error(f'{key!r} of {name}', value if wrapped else cast)
            raise SpaceError(f'The data do not fit {self._whose}. {error}')
        return cast


def spaces_of(source: Source) -> tuple[Spaces, Spaces]:
    """Spaces of observations and actions for an agent that learns from these data.

    What the source does not know is read off the data: integers reach to the largest
    that occurs, continuous actions are those of agents, in [-1, 1].
    """
    keys = [
        key
        for key in source.spaces
        if not (is_latent(key) or is_log(key) or key in RESERVED)
    ]
    actions = source.actions
    if actions is None:
        named = (x for x in keys if x == ACTION or x.startswith(f'{ACTION}/'))
        actions = tuple(named)
    if not actions:
        raise ReplayError(
            f'{source.name} does not say which of its keys are actions: there is no '
            f'{ACTION!r} among {", ".join(keys) or "none"}. Name the task: --task.'
        )
    spaces = {key: unify(source.spaces[key]) for key in keys}
    spaces |= _counted(source, {k: v for k, v in spaces.items() if _is_open(v)})
    for key in actions:
        space = spaces[key]
        if space.dtype.kind == 'f' and not np.isfinite(space.low).any():
            spaces[key] = elements.Space(space.dtype, space.shape, -1, 1)
    obs = obs_spaces({k: v for k, v in spaces.items() if k not in actions})
    act = act_spaces({k: v for k, v in spaces.items() if k in actions})
    del act['reset']
    return obs, act


def _counted(source: Source, spaces: Mapping[str, elements.Space]) -> Spaces:
    """Spaces of integers up to the largest that occurs."""
    largest = dict.fromkeys(spaces, 0)
    for episode in source.episodes(list(spaces)) if spaces else ():
        for key in spaces:
            value = episode.values[key]
            largest[key] = max(largest[key], int(value.max(initial=0)))
    return {
        key: elements.Space(space.dtype, space.shape, 0, largest[key] + 1)
        for key, space in spaces.items()
    }


def _is_open(space: elements.Space) -> bool:
    """Whether integers have no bounds but those of their dtype."""
    return space.dtype == np.int32 and bool((space.low < 0).any())


def _unbounded(space: elements.Space) -> elements.Space:
    if space.dtype.kind != 'f':
        return space
    return elements.Space(space.dtype, space.shape)


def _castable(found: Any, wanted: Any) -> bool:
    return np.can_cast(found, wanted, 'same_kind') or (
        found.kind in 'ui' and wanted.kind in 'ui' and wanted.itemsize > 1
    )


def _has_wrapped(value: Array, cast: Array) -> bool:
    """Whether integers were too large for their new dtype."""
    both = value.dtype.kind in 'iu' and cast.dtype.kind in 'iu'
    return both and value.dtype != cast.dtype and not np.array_equal(cast, value)


def _shown(space: elements.Space | None) -> str:
    return 'nothing' if space is None else describe(space)
