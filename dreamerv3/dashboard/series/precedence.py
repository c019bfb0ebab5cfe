"""Precedence: questions go first, work in the background waits while one is answered.

Both are bound by the interpreter's lock. A thread that reads in small pieces gets it
back only after milliseconds, each time, while another computes.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ['Precedence']

LONGEST = 1.0  # seconds that the background is held up, so that it gets on at all


class Precedence:
    """Counts the questions that are being answered."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._questions = 0

    @contextmanager
    def question(self) -> Iterator[None]:
        """Around the answer to a question."""
        with self._changed:
            self._questions += 1
        try:
            yield
        finally:
            with self._changed:
                self._questions -= 1
                self._changed.notify_all()

    def give_way(self) -> None:
        """In the background, every few milliseconds of work."""
        with self._changed:
            self._changed.wait_for(lambda: not self._questions, LONGEST)
