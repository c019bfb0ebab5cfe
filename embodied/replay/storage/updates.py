"""Updates: what training writes back to steps that are stored already."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from embodied.core.base import Array, Batch
from embodied.core.errors import ReplayError

from ..sampling.index import NONE
from ..sampling.selector import Selector
from .store import Store

__all__ = ['Updates']


class Updates:
    """Overwrites latents in the store and priorities in the selector."""

    def __init__(self, store: Store, selector: Selector):
        self._store = store
        self._selector = selector

    def apply(self, data: Mapping[str, Any]) -> tuple[int, int]:
        """Takes values [..., T, ...] for the steps data['stepid'] [..., T, 20].

        Returns how many steps there were, and how many of them are evicted by now.
        """
        values = {key: np.asarray(value) for key, value in data.items()}
        ids = values.pop('stepid')
        priorities = values.pop('priority', None)
        positions = self._store.find(ids)
        self._check(values, positions.shape)
        self._write(positions, values, priorities)
        return positions.size, int((positions == NONE).sum())

    def _write(self, positions: Array, values: Batch, priorities: Array | None) -> None:
        """Positions [..., T]; values [..., T, ...]; priorities [..., T]."""
        block = positions.reshape(-1, positions.shape[-1])
        values = {
            key: value.reshape(*block.shape, *value.shape[positions.ndim :])
            for key, value in values.items()
        }
        if priorities is not None:
            priorities = np.asarray(priorities, np.float32).reshape(block.shape)
        for which, firsts, span in self._store.runs(block):
            runs = (len(firsts), span)
            if values:
                part = {
                    key: value[which].reshape(*runs, *value.shape[2:])
                    for key, value in values.items()
                }
                self._store.write_latents(firsts, span, part)
            if priorities is not None:
                part = priorities[which].reshape(runs)
                self._selector.prioritize(firsts, part)

    def _check(self, values: Batch, shape: tuple[int, ...]) -> None:
        schema = self._store.schema
        for key, value in values.items():
            column = schema.columns.get(key) if schema else None
            if column is None:
                raise ReplayError(
                    f"update got the key '{key}', which no stored step has. The policy "
                    f'must return it with every step, so that there is room for it.'
                )
            if value.shape != (*shape, *column.shape):
                raise ReplayError(
                    f"update got '{key}' of shape {value.shape} for step ids of shape "
                    f'{shape}; expected {(*shape, *column.shape)}.'
                )
