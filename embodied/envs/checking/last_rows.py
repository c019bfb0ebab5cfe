"""Last rows that belong to the next episode: simulators that reset inside a step."""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from ...core.base import Spaces
from ...core.step_keys import is_log
from .faults import Finding
from .member_faults import WITH_FINAL
from .member_play import COMMON

__all__ = ['Features', 'LastRows', 'to_bytes']

FEATURES = 64  # numbers per key that stand for larger arrays
ENDS = 200  # that are kept
EQUAL_ENDS = 2  # at least, to say that last rows equal first ones
NEAR_ENDS = 5  # at least, to say that they are like first ones
MOST = 0.8
NEARER = 0.5  # times the distance to the row before
JUMP = 3.0  # times the distance that members go in a step


class Features:
    """Numbers that stand for the observations of rows and keep their distances.

    Arrays of more than 64 entries become 64 sums of entries with random signs, which
    keeps distances in expectation.
    """

    def __init__(self, spaces: Spaces) -> None:
        self.keys = [k for k in spaces if k not in COMMON and not is_log(k)]
        self._sketches: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def __call__(self, rows: Mapping[str, Any], count: int) -> np.ndarray:
        """[count, features] of rows [count, ...]."""
        parts = [self._of_key(rows[k], count) for k in self.keys if k in rows]
        return np.concatenate([np.zeros((count, 0)), *parts], axis=1)

    def _of_key(self, value: Any, count: int) -> np.ndarray:
        flat = np.asarray(value).reshape(count, -1).astype(np.float32)
        flat = np.nan_to_num(flat, posinf=0, neginf=0)
        size = flat.shape[1]
        if size <= FEATURES:
            return flat
        order, signs = self._sketch(size)
        return (flat[:, order] * signs).reshape(count, FEATURES, -1).sum(-1)

    def _sketch(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """The entries in random order, filled up to a multiple of 64, and signs."""
        if size not in self._sketches:
            random = np.random.default_rng(size)
            order = np.zeros(-(-size // FEATURES) * FEATURES, np.int64)
            signs = np.zeros(len(order), np.float32)
            places = random.permutation(len(order))[:size]
            order[places] = np.arange(size)
            signs[places] = random.choice([-1, 1], size)
            self._sketches[size] = order, signs
        return self._sketches[size]


def to_bytes(value: Any) -> bytes:
    """Bytes that are equal where values are; zeros lose their signs."""
    array = np.asarray(value)
    return (array + 0.0 if array.dtype.kind == 'f' else array).tobytes()


class _End(NamedTuple):
    """The end of an episode.

    rows: features [4, F] of the two rows before the last one, of the last one and of
    the first one of the next episode. is_short: one row before it stands for two.
    """

    rows: np.ndarray
    is_short: bool
    equals_next: bool  # The last row has the observation of the next first one,
    moves: bool  # and the row before has another.


class LastRows:
    """Whether last rows show the ends of their episodes, or the beginnings of others.

    `see` takes the rows of a member in their order; the arrays may not change later.
    """

    def __init__(self, spaces: Spaces, watched: int) -> None:
        self._features = Features(spaces)
        self._before: list[deque[dict[str, Any]]] = [
            deque(maxlen=3) for _ in range(watched)
        ]
        self._ends: list[_End] = []

    def see(self, member: int, row: Mapping[str, Any]) -> None:
        before = self._before[member]
        if row['is_first']:
            has_ended = len(before) > 1 and before[-1]['is_last']
            rows = [*before, dict(row)]
            if has_ended and len(self._ends) < ENDS and self._are_whole(rows):
                self._ends.append(self._end(rows))
            before.clear()
        before.append(dict(row))

    def findings(self) -> Iterator[Finding]:
        count = len(self._ends)
        moves = sum(end.moves for end in self._ends)
        equal = all(end.equals_next for end in self._ends)
        if count >= EQUAL_ENDS and equal and 2 * moves >= count:
            yield Finding(
                'error',
                f'Rows with is_last=True show the next episode already: expected the '
                f'last observation of their own, got that of the first row after them, '
                f'in all {count} ends.',
                WITH_FINAL,
            )
        elif self._are_near():
            yield Finding(
                'warning',
                'Rows with is_last=True look like beginnings of episodes: their '
                'observations are much nearer to those of first rows than to those of '
                'the rows before them. Perhaps last observations are lost.',
                WITH_FINAL,
            )

    def _are_whole(self, rows: list[dict[str, Any]]) -> bool:
        return all(row.keys() >= set(self._features.keys) for row in rows)

    def _end(self, rows: list[dict[str, Any]]) -> _End:
        is_short = len(rows) == 3
        rows = rows[:1] + rows if is_short else rows
        features = [
            self._features({k: np.asarray(v)[None] for k, v in row.items()}, 1)
            for row in rows
        ]
        _, before, last, first = (self._bytes(row) for row in rows)
        return _End(np.concatenate(features), is_short, last == first, before != first)

    def _bytes(self, row: Mapping[str, Any]) -> bytes:
        return b''.join(to_bytes(row[key]) for key in self._features.keys)

    def _are_near(self) -> bool:
        """Whether last rows are a jump away from their episodes, near first rows."""
        rows = np.array([end.rows for end in self._ends if not end.is_short])
        if len(rows) < NEAR_ENDS:
            return False
        scale = rows.std((0, 1))
        rows = rows[..., scale > 0] / scale[scale > 0]
        ahead, before, last, first = rows.swapaxes(0, 1)
        jump = np.linalg.norm(last - before, axis=1)
        usual = np.quantile(np.linalg.norm(before - ahead, axis=1), 0.9)
        near = np.linalg.norm(last - first, axis=1) < NEARER * jump
        return bool(np.mean(near & (jump > JUMP * usual)) >= MOST)
