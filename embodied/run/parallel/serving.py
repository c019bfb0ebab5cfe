"""Serving: runs a server and the periodic chores of its role until an end."""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ... import transport

__all__ = ['Chore', 'serve']

SHORTEST = 0.5  # seconds between two runs of a chore that is always due


class Chore(NamedTuple):
    """Something to do every few seconds; 0 is never, negative always."""

    every: float
    run: Callable[[], Any]

    @property
    def period(self) -> float:
        return self.every if self.every > 0 else SHORTEST


def serve(
    server: transport.ServerInterface,
    chores: Sequence[Chore],
    events: queue.SimpleQueue,
) -> str:
    """Serves until a reason to end is put into `events`, and returns it.

    Raises a failure of the server. The caller closes the server after its last save,
    since an answer right before the end of a connection may not arrive.
    """
    server.start(block=False)
    threading.Thread(target=_watch, args=(server, events), daemon=True).start()
    reason = _work(chores, events)
    if isinstance(reason, Exception):
        raise reason
    return reason


def _work(chores: Sequence[Chore], events: queue.SimpleQueue) -> Any:
    begin = time.monotonic()
    dues = [(begin + chore.period, chore) for chore in chores if chore.every]
    while True:
        soonest = min((due for due, _ in dues), default=None)
        left = None if soonest is None else max(0.0, soonest - time.monotonic())
        try:
            return events.get(timeout=left)
        except queue.Empty:
            dues = [_run_if_due(due, chore) for due, chore in dues]


def _run_if_due(due: float, chore: Chore) -> tuple[float, Chore]:
    if time.monotonic() < due:
        return due, chore
    chore.run()
    return time.monotonic() + chore.period, chore


def _watch(server: transport.ServerInterface, events: queue.SimpleQueue) -> None:
    try:
        server.wait()
        events.put('closed')
    except Exception as error:  # noqa: BLE001 - raised by the thread that reads events
        events.put(error)
