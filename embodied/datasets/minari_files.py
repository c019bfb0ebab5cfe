"""Minari datasets: read as the adapter of Gymnasium would observe them, and written.

obs      o_0  o_1 ... o_T        row t observes o_t,
action   a_0  a_1 ... (zero)     chooses a_t
reward   0    r_0 ... r_{T-1}    and has received r_{t-1}
"""

import contextlib
import importlib.util
import re
import warnings
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import elements
import gymnasium
import numpy as np

from ..core.base import Array, Batch, Spaces
from ..core.errors import ConfigError, MissingExtraError, ReplayError, SpaceError
from ..envs.adapters.from_gym import codecs_of
from ..envs.spaces import unify
from .completing import complete
from .source import Episode, Source

__all__ = ['PREFIX', 'MinariFiles', 'is_dataset', 'write_minari']

PREFIX = 'minari:'  # of ids, instead of folders
DATA, METADATA = 'data', 'metadata.json'  # of the folder of a dataset
# As Minari has it: what comes before the name has two letters at least.
ID = re.compile(r'([-\w][-\w/]*[-\w]/)?[-\w]+?-v\d+')
ACTION = 'action'
PLAIN = ('image', 'vector')  # keys of observations that need no dict
# What Minari raises for files that are not as it wrote them.
READING = (
    *(ValueError, OSError, KeyError, RuntimeError, AssertionError),
    gymnasium.error.Error,
)


class MinariFiles(Source):
    """Keys, dtypes and numbers are those that `gym:<id>` gives to the agent; directions
    of continuous actions that have bounds are scaled from these to [-1, 1]."""

    is_raw = True

    def __init__(self, name: str):
        self.name = name
        self._data = _open(name)
        try:
            self._obs, self._act = codecs_of(
                self._data.observation_space, self._data.action_space, None, ACTION
            )
        except SpaceError as error:
            raise SpaceError(f'{name}: {error}') from error
        self.count = int(self._data.total_episodes)
        # One observation more than there are actions.
        self.steps = int(self._data.total_steps) + self.count
        if not self.count:
            raise ReplayError(f'The Minari dataset {name} has no episodes.')
        self.actions = tuple(self._act.spaces)
        self._scales = {
            key: Scale(space)
            for key, space in self._act.spaces.items()
            if space.dtype.kind == 'f'
        }
        spaces = {**self._obs.spaces, **self._act.spaces}
        spaces |= {key: scale.space for key, scale in self._scales.items()}
        self.spaces = {key: unify(space) for key, space in spaces.items()}
        self.spaces |= {'reward': elements.Space(np.float32)}
        self.spaces |= {'is_terminal': elements.Space(bool)}

    def episodes(self, names: Collection[str]) -> Iterator[Episode]:
        episodes = iter(self._data.iterate_episodes())
        while (episode := self._next(episodes)) is not None:
            name = f'Episode {episode.id} of {self.name}'
            values = self._values(episode)
            wanted = {key: x for key, x in values.items() if key in names}
            yield Episode(name, wanted)

    def _next(self, episodes: Iterator[Any]) -> Any:
        with _reading(self.name):
            return next(episodes, None)

    def _values(self, episode: Any) -> Batch:
        values = self._obs.encode(episode.observations)
        for key, value in self._act.encode(episode.actions).items():
            scaled = self._scales[key](value) if key in self._scales else value
            values[key] = np.concatenate([scaled, np.zeros_like(scaled[:1])])
        first = lambda x, value: np.concatenate([[value], x])
        return {
            **values,
            'reward': first(np.asarray(episode.rewards, np.float32), np.float32(0)),
            'is_terminal': first(np.asarray(episode.terminations, bool), False),
        }


class Scale:
    """Actions from the bounds of an environment to [-1, 1], as `NormalizeAction` lets
    agents act; what lies beyond the bounds is clipped, as the environment would."""

    def __init__(self, space: elements.Space):
        low, high = np.float64(space.low), np.float64(space.high)
        self._finite = np.isfinite(low) & np.isfinite(high) & (low < high)
        self._low = np.where(self._finite, low, -1)
        self._high = np.where(self._finite, high, 1)
        self._dtype = space.dtype
        self.space = elements.Space(
            space.dtype,
            space.shape,
            np.where(self._finite, -1, space.low),
            np.where(self._finite, 1, space.high),
        )

    def __call__(self, value: Array) -> Array:
        value = np.asarray(value, np.float64)
        share = (value - self._low) / (self._high - self._low)
        scaled = np.clip(2 * share - 1, -1, 1)
        return np.where(self._finite, scaled, value).astype(self._dtype)


def is_dataset(path: Path) -> bool:
    """Whether a folder is that of a Minari dataset."""
    return (path / DATA / METADATA).exists()


def write_minari(
    name: str, episodes: Iterable[Episode], obs: Spaces, act: Spaces
) -> int:
    """Writes episodes as the dataset `name`; returns how many.

    Pictures are kept as they are, without the loss of JPEG. Continuous actions are
    clipped to their bounds, as the environment does with what policies sample beyond.
    """
    minari = _import_minari()
    if not ID.fullmatch(name):
        raise ConfigError(
            f'{name!r} is no id of a Minari dataset. Give one such as catch/demo-v0: '
            'a namespace has two letters at least.'
        )
    if minari.storage.local.get_dataset_path(name).exists():
        raise ConfigError(
            f'There is a Minari dataset {name} already. Choose another version, or '
            f'delete it: minari delete {name}'
        )
    count = 0

    def buffers() -> Iterator[Any]:
        nonlocal count
        for episode in episodes:
            rows = complete(episode)
            if len(rows['reward']) > 1:  # else there is no action in it
                yield _buffer(minari, rows, obs, act)
                count += 1

    with warnings.catch_warnings():
        # About what only its author knows: address, description, link to the code.
        warnings.simplefilter('ignore', UserWarning)
        minari.create_dataset_from_buffers(
            name,
            buffers(),
            observation_space=_nested(
                {k: _foreign(k, x) for k, x in obs.items()}, PLAIN
            ),
            action_space=_nested(
                {k: _foreign(k, x) for k, x in act.items()}, (ACTION,)
            ),
            jpeg_encoding=False,
        )
    return count


def _buffer(minari: Any, rows: Batch, obs: Spaces, act: Spaces) -> Any:
    """All rows of one episode in the form of Minari."""
    terminal, last = rows['is_terminal'][1:], rows['is_last'][1:]
    actions = {key: rows[key][:-1] for key in act}
    for key, space in act.items():
        if space.dtype.kind == 'f':
            actions[key] = np.clip(actions[key], space.low, space.high)
    return minari.data_collector.EpisodeBuffer(
        observations=_nested({key: rows[key] for key in obs}, PLAIN),
        actions=_nested(actions, (ACTION,)),
        rewards=rows['reward'][1:],
        terminations=terminal,
        truncations=last & ~terminal,
    )


def _nested(values: dict[str, Any], plain: Collection[str]) -> Any:
    """Values as a dict of dicts, with the parts of their keys; a single one that has
    the name that Gymnasium's adapter gives to plain values as it is."""
    if len(values) == 1 and next(iter(values)) in plain:
        return next(iter(values.values()))
    tree: dict[str, Any] = {}
    for key, value in values.items():
        *path, name = key.split('/')
        node = tree
        for part in path:
            node = node.setdefault(part, {})
        node[name] = value
    return _as_space(tree)


def _as_space(tree: dict[str, Any]) -> Any:
    parts = {k: _as_space(x) if isinstance(x, dict) else x for k, x in tree.items()}
    if any(isinstance(x, gymnasium.Space) for x in parts.values()):
        return gymnasium.spaces.Dict(parts)
    return parts


def _foreign(key: str, space: elements.Space) -> gymnasium.Space:
    """The space of Gymnasium that the adapter turns into this one."""
    box = gymnasium.spaces.Box
    if space.dtype.kind == 'f':
        return box(space.low, space.high, space.shape, space.dtype)
    if space.dtype == np.uint8:
        return box(0, 255, space.shape, np.uint8)
    if space.dtype == bool:
        raise SpaceError(
            f'The key {key!r} is boolean, which no space of Gymnasium gives back. Use '
            '--format npz.'
        )
    high = np.broadcast_to(space.high, space.shape)
    if not space.shape:
        return gymnasium.spaces.Discrete(int(high))
    return gymnasium.spaces.MultiDiscrete(high.astype(np.int64))


def _open(name: str) -> Any:
    """The dataset of an id, or in a folder."""
    minari = _import_minari()
    if not name.startswith(PREFIX):
        return _read(minari, name, Path(name).expanduser() / DATA)
    known = name.removeprefix(PREFIX)
    if not ID.fullmatch(known):
        raise ConfigError(
            f'{known!r} is no id of a Minari dataset. Give one such as '
            f'{PREFIX}D4RL/door/human-v2.'
        )
    path = minari.storage.local.get_dataset_path(known)
    if not (path / DATA).exists():
        there = ', '.join(sorted(minari.list_local_datasets())) or 'none'
        raise ConfigError(
            f'The Minari dataset {known} is not on this machine, in {path}. Fetch it: '
            f'minari download {known}. There are: {there}.'
        )
    return _read(minari, name, path / DATA)


def _read(minari: Any, name: str, path: Path) -> Any:
    with _reading(name):
        return minari.MinariDataset(path)


@contextlib.contextmanager
def _reading(name: str) -> Iterator[None]:
    try:
        yield
    except READING as error:
        raise ReplayError(
            f'The Minari dataset {name} cannot be read: {error}'
        ) from error


def _import_minari() -> Any:
    if not all(importlib.util.find_spec(x) for x in ('minari', 'h5py')):
        raise MissingExtraError(
            "Datasets of Minari need: pip install 'dreamer-parallel[minari]'."
        )
    import minari
    import minari.data_collector
    import minari.storage.local

    return minari
