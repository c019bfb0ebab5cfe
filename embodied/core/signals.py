"""Stop signals: turns the first SIGINT or SIGTERM into a wish to end cleanly."""

import contextlib
import queue
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any

__all__ = ['StopSignals']

WATCHED = (signal.SIGINT, signal.SIGTERM)
WAKE = signal.SIGURG  # which nobody minds
ANSWER = 0.2  # seconds for the main thread to run the handler


class StopSignals:
    """Context in which the first signal only sets `received`.

    From then on both signals do what they did before the context was entered, so a
    second one ends the program at once. Signals that are ignored (a background job, a
    worker whose launcher decides) stay ignored. Outside of the main thread, which is
    the only one that can receive signals, nothing is installed.

    `notify` is called with the name of the signal, inside of its handler: between any
    two instructions of the main thread, so it may take no lock that this thread holds
    (`queue.SimpleQueue.put` is made for it).
    """

    def __init__(self, notify: Callable[[str], Any] | None = None) -> None:
        self.received: str | None = None
        self._notify = notify
        self._previous: dict[int, Any] = {}
        self._waking = contextlib.ExitStack()

    def __enter__(self) -> 'StopSignals':
        if threading.current_thread() is threading.main_thread():
            self._waking.enter_context(_waking_the_main_thread())
            for number in WATCHED:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._previous[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._restore()
        self._waking.close()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number).name
        self._restore()
        if self._notify:
            self._notify(self.received)

    def _restore(self) -> None:
        while self._previous:
            number, handler = self._previous.popitem()
            _set_handler(number, handler)


@contextlib.contextmanager
def _waking_the_main_thread() -> Iterator[None]:
    """Handlers run in the main thread, but the system may hand a signal to any other,
    and then a main thread that blocks sleeps on."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)  # as signal handlers demand
    heard: queue.SimpleQueue[int] = queue.SimpleQueue()
    handler = signal.signal(WAKE, lambda number, frame: heard.put(number))
    previous = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    main = threading.get_ident()

    def wake() -> None:
        while number := ours.recv(1):
            if number[0] not in WATCHED:
                continue
            # Until it was heard: one that comes after Python has looked for signals
            # and before the system call begins to wait ends no wait.
            signal.pthread_kill(main, WAKE)
            while not _answered(heard, ANSWER):
                signal.pthread_kill(main, WAKE)

    thread = threading.Thread(target=wake, name='signals', daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(previous)
        theirs.close()
        thread.join()
        ours.close()
        _set_handler(WAKE, handler)


def _answered(answers: 'queue.SimpleQueue[int]', timeout: float) -> bool:
    try:
        answers.get(timeout=timeout)
    except queue.Empty:
        return False
    return True


def _set_handler(number: int, handler: Any) -> None:
    # None: set by code outside of Python, which cannot be put back.
    signal.signal(number, signal.SIG_DFL if handler is None else handler)
