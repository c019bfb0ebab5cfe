"""The logger: collects metrics between two writes and hands them to the outputs."""

import collections
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import elements
import numpy as np

from ..core import base
from ..core.errors import DreamerError

__all__ = ['Entry', 'Episode', 'Logger', 'Output', 'scalars']

Entry: TypeAlias = tuple[int, str, np.ndarray | str]
Output: TypeAlias = Callable[[Sequence[Entry]], None]

MAX_RANK = 4  # a video [T, H, W, C]


class Episode(NamedTuple):
    """A finished episode."""

    step: int  # of the run
    score: float
    length: int
    is_eval: bool


class Logger(base.Logger):
    """Collects metrics at the current step and writes them to every output.

    An output is called with a tuple of (step, name, value) and may have `close()`;
    outputs of `elements.logger` fit. One with `add_episodes` gets every single episode,
    too. One that raises is reported and dropped, because a full disk or a lost
    connection must not end a run of days. `report` is told its name and what happened.
    """

    def __init__(
        self,
        step: elements.Counter,
        outputs: Sequence[Output],
        report: Callable[[str, str], Any] = lambda name, error: None,
    ):
        self.step = step
        self.outputs = list(outputs)
        self._report = report
        self._entries: list[Entry] = []
        self._episodes: collections.deque[Episode] = collections.deque()

    def attach(self, name: str, make: Callable[[], Output]) -> None:
        """Adds the output that `make` returns, unless that fails.

        Users' mistakes, such as a package that is not installed, are raised.
        """
        try:
            self.outputs.append(make())
        except DreamerError:
            raise
        except Exception as error:  # noqa: BLE001, reported; see the class docstring
            self._report_failure(name, error)

    def watch(self, doing: Callable[[], str]) -> None:
        """Outputs for people show what `doing` says: what takes long now, or ''."""
        for output in tuple(self.outputs):
            watch = getattr(output, 'watch', None)
            if watch:
                self._guard(output, functools.partial(watch, doing))

    def add(self, metrics: Mapping[str, Any], prefix: str | None = None) -> None:
        step = int(self.step)
        for name, value in metrics.items():
            name = f'{prefix}/{name}' if prefix else name
            if not isinstance(value, str):
                value = np.asarray(value)
                if value.dtype.name == 'bfloat16':  # NumPy cannot tell it is a float
                    value = value.astype(np.float32)
                if value.ndim > MAX_RANK or value.dtype.kind not in 'biuf':
                    raise ValueError(
                        f"Metric '{name}' is a {value.dtype} array of shape "
                        f'{value.shape}. Log strings, or numeric arrays of rank 0 '
                        '(scalar), 1 (histogram), 3 (image) or 4 (video).'
                    )
            self._entries.append((step, name, value))

    def add_episode(self, episode: Episode) -> None:
        """Takes a single episode, from any thread. `add` takes means over many."""
        if any(hasattr(output, 'add_episodes') for output in self.outputs):
            self._episodes.append(episode)

    def write(self) -> None:
        self._write_episodes()
        if not self._entries:
            return
        entries, self._entries = tuple(self._entries), []
        for output in tuple(self.outputs):
            self._guard(output, functools.partial(output, entries))

    def _write_episodes(self) -> None:
        # Others may add further ones meanwhile.
        episodes = [self._episodes.popleft() for _ in range(len(self._episodes))]
        if not episodes:
            return
        for output in tuple(self.outputs):
            take = getattr(output, 'add_episodes', None)
            if take:
                self._guard(output, functools.partial(take, episodes))

    def close(self) -> None:
        self.write()
        for output in tuple(self.outputs):
            # Outputs of `elements.logger` that write in a thread call this `wait`.
            end = getattr(output, 'close', None) or getattr(output, 'wait', None)
            if end:
                self._guard(output, end)
        self.outputs = []

    def _guard(self, output: Output, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001, reported; see the class docstring
            self.outputs.remove(output)
            self._report_failure(type(output).__name__, error)

    def _report_failure(self, name: str, error: Exception) -> None:
        message = f'{type(error).__name__}: {error}'
        print(
            f'The log output {name} failed and is off from now on: {message}',
            file=sys.stderr,
        )
        self._report(name, message)


def scalars(entries: Sequence[Entry]) -> dict[str, float]:
    """The scalar metrics of one write; what was added several times is averaged."""
    found: dict[str, list[float]] = {}
    for _, name, value in entries:
        if not isinstance(value, str) and np.ndim(value) == 0:
            found.setdefault(name, []).append(float(value))
    return {name: sum(values) / len(values) for name, values in found.items()}
