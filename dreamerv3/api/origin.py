"""Origin: what an agent was made from, as plain data that travels with its weights."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import elements
import numpy as np

from embodied.core.base import Spaces
from embodied.core.errors import CheckpointError

__all__ = ['Origin', 'describe_spaces', 'rebuild_spaces']


class Origin(NamedTuple):
    """The options and spaces of an agent; enough to build it without environment."""

    config: elements.Config
    obs_space: Spaces
    act_space: Spaces

    def save(self) -> dict[str, Any]:
        """Numbers, texts, tuples, lists and dicts only."""
        return {
            'config': dict(self.config.flat),
            'obs_space': describe_spaces(self.obs_space),
            'act_space': describe_spaces(self.act_space),
        }

    @classmethod
    def load(cls, data: Mapping[str, Any]) -> 'Origin':
        spaces = (rebuild_spaces(data[key]) for key in ('obs_space', 'act_space'))
        return cls(elements.Config(data['config']), *spaces)

    @classmethod
    def of_checkpoint(cls, data: Mapping[str, Any], path: Any) -> 'Origin':
        """From what a DreamerV3 agent saved."""
        if 'origin' not in data:
            raise CheckpointError(
                f'The agent in {path} does not say what it was made from: it is no '
                'DreamerV3 agent, or was saved by an older version. Continue its run '
                'for one save, or train a new one.'
            )
        return cls.load(data['origin'])


def describe_spaces(spaces: Spaces) -> dict[str, Any]:
    """As numbers, texts, lists and dicts only."""
    return {name: _describe(space) for name, space in spaces.items()}


def rebuild_spaces(data: Mapping[str, Any]) -> Spaces:
    """The inverse of `describe_spaces`."""
    return {name: _rebuild(x) for name, x in data.items()}


def _describe(space: elements.Space) -> dict[str, Any]:
    return {
        'dtype': space.dtype.name,
        'shape': list(space.shape),
        'low': _bound(space.low),
        'high': _bound(space.high),
    }


def _rebuild(data: Mapping[str, Any]) -> elements.Space:
    dtype, shape = np.dtype(data['dtype']), tuple(data['shape'])
    if dtype.kind == 'b':
        return elements.Space(dtype, shape)
    low, high = (
        np.array([open_end if x is None else x for x in data[key]], dtype)
        for key, open_end in (('low', -np.inf), ('high', np.inf))
    )
    shaped = lambda x: np.broadcast_to(x if len(x) > 1 else x[0], shape)
    return elements.Space(dtype, shape, shaped(low), shaped(high))


def _bound(values: Any) -> list[float | int | None]:
    """One number for all elements if they are equal; None where there is no bound."""
    flat = np.asarray(values).flatten()
    if len(flat) and (flat == flat[0]).all():
        flat = flat[:1]
    return [None if not np.isfinite(x) else x.item() for x in flat]
