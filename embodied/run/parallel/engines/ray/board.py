"""Board: where launchers that join a run find its servers. A Ray actor."""

import threading

from ...address_book import Places

__all__ = ['NAMESPACE', 'Board', 'board_name']

NAMESPACE = 'dreamer-parallel'  # in which Ray looks for names


class Board:
    """Filled by the launcher of the run, with whom it ends."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._places = Places()

    def publish(self, places: Places) -> None:
        with self._change:
            if places.number > self._places.number:
                self._places = places
                self._change.notify_all()

    def await_newer(self, number: int, seconds: float) -> Places:
        """Blocks until there are places with a higher number, but not for longer than
        that: whoever asks has to know whether it is still there."""
        with self._change:
            self._change.wait_for(lambda: self._places.number > number, seconds)
            return self._places


def board_name(logdir: str) -> str:
    return f'run in {logdir}'
