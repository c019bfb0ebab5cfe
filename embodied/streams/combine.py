"""Streams made of other streams: transformed, joined into one batch, or mixed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import elements
import numpy as np

from embodied.core import base
from embodied.core.errors import ConfigError

from .stateless import load_stream, save_stream

__all__ = ['Map', 'Mixer', 'Zip']


class Map(base.Stream):
    """Applies `fn(item, *args, **kwargs)` to every item."""

    def __init__(self, source: Iterable, fn: Callable, *args: Any, **kwargs: Any):
        self._source = iter(source)
        self._fn = lambda item: fn(item, *args, **kwargs)

    def __next__(self) -> Any:
        return self._fn(next(self._source))

    def save(self) -> Any:
        return save_stream(self._source)

    def load(self, data: Any) -> None:
        load_stream(self._source, data)


class Zip(base.Stream):
    """Joins one batch of every source along the batch axis."""

    def __init__(self, sources: Sequence[Iterable]):
        if not sources:
            raise ConfigError('Zip needs at least one source.')
        self._sources = [iter(source) for source in sources]

    def __next__(self) -> Any:
        parts = [next(source) for source in self._sources]
        return elements.tree.map(lambda *leaves: np.concatenate(leaves), *parts)

    def save(self) -> Any:
        return [save_stream(source) for source in self._sources]

    def load(self, data: Any) -> None:
        for source, state in zip(self._sources, data, strict=True):
            load_stream(source, state)


class Mixer(base.Stream):
    """Takes each item from one source, drawn with the given weights.

    The draw of item n depends on the seed and n alone, so its position is one number.
    """

    def __init__(
        self,
        sources: Mapping[str, Iterable] | Sequence[Iterable],
        weights: Mapping[str, float] | Sequence[float],
        seed: int = 0,
    ):
        named, shares = _by_name(sources), _by_name(weights)
        if not named or named.keys() != shares.keys():
            raise ConfigError(
                f'Mixer got sources {sorted(named)} and weights for {sorted(shares)}: '
                f'every source needs one weight.'
            )
        self._keys = sorted(named)
        self._sources = [iter(named[key]) for key in self._keys]
        chances = np.array([shares[key] for key in self._keys], np.float64)
        if (chances < 0).any() or not 0 < chances.sum() < np.inf:
            raise ConfigError(
                f'Mixer got the weights {shares}: they must be at least 0 and their '
                f'sum positive and finite.'
            )
        self._probs = chances / chances.sum()
        self._seed = seed
        self._step = 0

    def __next__(self) -> Any:
        rng = np.random.default_rng([self._seed, self._step])
        item = next(self._sources[rng.choice(len(self._keys), p=self._probs)])
        self._step += 1
        return item

    def save(self) -> Any:
        sources = zip(self._keys, self._sources, strict=True)
        return {
            'step': self._step,
            'seed': self._seed,
            'sources': {key: save_stream(source) for key, source in sources},
        }

    def load(self, data: Any) -> None:
        self._step = data['step']
        self._seed = data['seed']
        for key, source in zip(self._keys, self._sources, strict=True):
            load_stream(source, data['sources'][key])


def _by_name(values: Any) -> dict:
    return dict(values) if isinstance(values, Mapping) else dict(enumerate(values))
