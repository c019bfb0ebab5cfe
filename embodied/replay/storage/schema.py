"""Schema of a replay: which columns a step has, and what differs from another one."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from embodied.core.base import Array, Batch
from embodied.core.errors import ReplayError
from embodied.core.step_keys import is_latent, is_log

__all__ = [
    'ORDER',
    'OWN_COLUMNS',
    'PRIORITY',
    'SERIAL',
    'VERSION',
    'Column',
    'Schema',
]


@dataclasses.dataclass(frozen=True)
class Column:
    """One key of every step. Latents are columns that are overwritten later on."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    latent: bool = False

    @property
    def nbytes(self) -> int:
        return self.dtype.itemsize * int(np.prod(self.shape, dtype=np.int64))

    def __str__(self) -> str:
        return f'{self.dtype}{list(self.shape)}' + ' (latent)' * self.latent


# Columns of the store itself, stored beside those of the steps.
SERIAL = Column('.serial', np.dtype(np.int64), ())  # number within the stream
ORDER = Column('.order', np.dtype(np.int64), ())  # number among all rows ever added
PRIORITY = Column('.priority', np.dtype(np.float32), ())  # NaN: never set
VERSION = Column('.version', np.dtype(np.uint32), (), True)  # of the latents
OWN_COLUMNS = (SERIAL, ORDER, PRIORITY, VERSION)


class Schema:
    """Columns by name, sorted. Made from the first steps or from a file's header."""

    def __init__(self, columns: Sequence[Column]):
        self.columns = {c.name: c for c in sorted(columns, key=lambda c: c.name)}

    @classmethod
    def of(
        cls, steps: Mapping[str, Any], count: int, context_keys: Sequence[str]
    ) -> 'Schema':
        """Schema of [count, ...] arrays; refuses what cannot lie in a file."""
        columns = []
        for name in kept(steps):
            value = np.asarray(steps[name])
            check_rows(name, value, count)
            if value.dtype.hasobject or value.dtype.kind not in 'biufc':
                raise ReplayError(
                    f"Replay cannot store the key '{name}' of dtype {value.dtype}: "
                    f'only numbers and booleans. Convert it, or name it log/... to '
                    f'leave it out.'
                )
            latent = is_latent(name, context_keys)
            columns.append(Column(name, value.dtype, value.shape[1:], latent))
        return cls(columns)

    @classmethod
    def from_json(cls, data: Sequence[Sequence[Any]]) -> 'Schema':
        return cls([Column(n, np.dtype(d), tuple(s), bool(x)) for n, d, s, x in data])

    def to_json(self) -> list[list[Any]]:
        return [
            [c.name, c.dtype.str, list(c.shape), c.latent]
            for c in self.columns.values()
        ]

    @property
    def main(self) -> list[Column]:
        """Columns that are written once."""
        return [SERIAL, ORDER, *(c for c in self.columns.values() if not c.latent)]

    @property
    def marks(self) -> list[Column]:
        """Small columns that training overwrites."""
        return [PRIORITY]

    @property
    def latents(self) -> list[Column]:
        """Columns that training overwrites, and that may lie in RAM."""
        return [VERSION, *(c for c in self.columns.values() if c.latent)]

    @property
    def all(self) -> list[Column]:
        return self.main + self.marks + self.latents

    @property
    def row_bytes(self) -> int:
        return sum(c.nbytes for c in self.all)

    @property
    def latent_bytes(self) -> int:
        return sum(c.nbytes for c in self.latents)

    def difference(self, other: 'Schema') -> list[str]:
        """One line per column that `other` has differently; empty if equal."""
        lines = []
        for name in sorted(self.columns.keys() | other.columns.keys()):
            mine, theirs = self.columns.get(name), other.columns.get(name)
            if mine is None or theirs is None or mine != theirs:
                lines.append(f'{name}: {mine or "absent"} -> {theirs or "absent"}')
        return lines

    def fit(self, steps: Mapping[str, Any], count: int) -> Batch:
        """Rows [count, ...] of all columns; refuses other keys, shapes or dtypes."""
        result = {}
        for name, column in self.columns.items():
            if name not in steps:
                raise self._wrong_keys(steps)
            value = result[name] = np.asarray(steps[name])
            if value.shape == (count, *column.shape) and value.dtype == column.dtype:
                continue  # the usual case
            check_rows(name, value, count)
            if value.shape[1:] != column.shape or not np.can_cast(
                value.dtype, column.dtype, 'same_kind'
            ):
                raise ReplayError(
                    f"The key '{name}' of a step is {value.dtype}"
                    f'{list(value.shape[1:])} but the replay holds {column}.'
                )
        if len(steps) > len(result) and kept(steps) != result.keys():
            raise self._wrong_keys(steps)
        return result

    def _wrong_keys(self, steps: Mapping[str, Any]) -> ReplayError:
        missing = sorted(self.columns.keys() - steps.keys())
        extra = sorted(kept(steps) - self.columns.keys())
        return ReplayError(
            f'A step does not have the keys of the steps before it: missing '
            f'{missing}, new {extra}. All steps of one replay need the same keys.'
        )


def kept(steps: Mapping[str, Any]) -> set[str]:
    """Keys that replay keeps."""
    return {key for key in steps if not is_log(key)}


def check_rows(name: str, value: Array, count: int) -> None:
    if not value.ndim or len(value) != count:
        raise ReplayError(
            f"add_batch got {count} workers but the key '{name}' has the shape "
            f'{value.shape}: its first axis must have one row per worker.'
        )
