"""Lasting output: printing goes on when its terminal or reader is gone."""

import contextlib
import errno
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ['lasting_output']

# Of a terminal that was closed, and of a pipe without a reader.
GONE = (errno.EIO, errno.EPIPE, errno.ENXIO)


@contextlib.contextmanager
def lasting_output() -> Iterator[None]:
    """Context in which printing survives the terminal or the reader of the pipe.

    A run whose terminal is closed still has to save; what it prints is dropped.
    """
    names = [name for name in ('stdout', 'stderr') if getattr(sys, name) is not None]
    streams = {name: _Lasting(getattr(sys, name)) for name in names}
    for name, stream in streams.items():
        setattr(sys, name, stream)
    try:
        yield
    finally:
        for name, stream in streams.items():
            if not stream.closed:
                stream.flush()  # else Python does so at the very end, and fails
            if getattr(sys, name) is stream:
                setattr(sys, name, stream.wrapped)


class _Lasting:
    """A text stream that drops its text once its other end is gone."""

    def __init__(self, stream: Any) -> None:
        self.wrapped = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)

    def write(self, text: str) -> int:
        with self._surviving():
            self.wrapped.write(text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        with self._surviving():
            self.wrapped.flush()

    @contextlib.contextmanager
    def _surviving(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in GONE:
                raise
            # Also for what is in buffers, and for processes that inherit it.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.wrapped.fileno())
            os.close(nowhere)
