"""Places: what each of several runs at a time gets of this machine."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import TypeAlias

__all__ = ['MEMORY', 'Places']

Cores: TypeAlias = frozenset[int]  # that a run may use; all of them if it is empty

MEMORY_SHARE = 0.9  # of a GPU, for all runs at a time together
MEMORY = 'XLA_PYTHON_CLIENT_MEM_FRACTION'  # JAX's own environment variable
ALL: Cores = frozenset()


class Places:
    """As many as runs at a time. On a GPU each has its share of the memory, on a CPU
    its share of the cores, so that no run waits for the threads of another one.

    cores: those that this process may use.
    """

    def __init__(
        self, at_once: int, on_gpu: bool, environ: Mapping[str, str], cores: Cores
    ) -> None:
        self.environ = dict(environ)
        self._all = cores
        if at_once > 1:
            self.environ.setdefault(MEMORY, f'{MEMORY_SHARE / at_once:.3f}')
        each = 0 if on_gpu or at_once == 1 else len(cores) // at_once
        self.cores = [_part(cores, each, place) for place in range(at_once)]
        self.text = self._describe(at_once, on_gpu, each)

    def _describe(self, at_once: int, on_gpu: bool, each: int) -> str:
        if at_once == 1:
            return ''
        if on_gpu:
            return f', each with {self.environ[MEMORY]} of the memory of its GPU'
        if not each:
            return f', which share {len(self._all)} CPU cores'
        return f', each on {each} CPU core{"s" * (each > 1)}'

    @contextlib.contextmanager
    def binding(self, cores: Cores) -> Iterator[None]:
        """Context in which a process that is started may use these cores only, with
        all that it starts."""
        if not cores:
            yield
            return
        os.sched_setaffinity(0, cores)
        try:
            yield
        finally:
            os.sched_setaffinity(0, self._all)


def usable_cores() -> Cores:
    if hasattr(os, 'sched_getaffinity'):
        return frozenset(os.sched_getaffinity(0))
    return ALL  # not Linux, where processes cannot be bound


def _part(cores: Cores, each: int, place: int) -> Cores:
    return frozenset(sorted(cores)[place * each : (place + 1) * each])
