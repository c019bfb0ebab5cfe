"""Completing: derives what a recorded episode lacks, and refuses what cannot be."""

import numpy as np

from ..core.base import Array, Batch
from ..core.errors import ReplayError
from .source import Episode

__all__ = ['DERIVED', 'FLAGS', 'complete', 'missing_reward']

FLAGS = ('is_first', 'is_last', 'is_terminal')
DERIVED = FLAGS  # keys that follow from where episodes begin and end


def complete(episode: Episode) -> Batch:
    """The values of the episode with all flags, which agree with each other.

    An episode begins with its first row and ends with its last one. Without
    `is_terminal`, its end counts as a cut: the value after it is not zero. Several
    episodes in one are separated by their flags.
    """
    values = {key: np.asarray(value) for key, value in episode.values.items()}
    rows = _rows(episode.name, values)
    if 'reward' not in values:
        raise missing_reward(episode.name, values)
    first, last, terminal = (_flag(values, name, rows) for name in FLAGS)
    last |= terminal
    first[1:] |= last[:-1]
    last[:-1] |= first[1:]
    first[0] = last[-1] = True
    return {**values, 'is_first': first, 'is_last': last, 'is_terminal': terminal}


def missing_reward(name: str, keys: object) -> ReplayError:
    return ReplayError(
        f"{name} holds no key 'reward', only {', '.join(sorted(keys))}. "  # type: ignore
        'Store the reward received on entering each step; the first one is 0.'
    )


def _rows(name: str, values: Batch) -> int:
    counts = {key: len(x) if x.ndim else None for key, x in values.items()}
    if len(set(counts.values())) != 1 or not all(counts.values()):
        lengths = ', '.join(f'{key} {x.shape}' for key, x in sorted(values.items()))
        raise ReplayError(
            f'{name} needs arrays with one row per step, at least one and all of the '
            f'same length, but has the shapes {lengths or "of nothing"}. The last step '
            'has an action, too, which nothing reads: zeros will do.'
        )
    return next(iter(counts.values())) or 0


def _flag(values: Batch, name: str, rows: int) -> Array:
    if name not in values:
        return np.zeros(rows, bool)
    return np.any(values[name].reshape(rows, -1), axis=1)
