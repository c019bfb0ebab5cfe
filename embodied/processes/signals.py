"""Stop signals: turns the first of them into a request for a clean end."""

import contextlib
import math
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from .output import lasting_output

__all__ = ['StopSignals', 'Terminated', 'end_quietly']

WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Seconds in which the same request may come again: `timeout` signals the process and
# its group, a closed terminal and a service manager send SIGHUP and SIGTERM.
REPEAT = 2.0
REPEAT_KEY = 0.5  # of SIGINT, which a person sends by a key that may bounce
AT_ONCE = 10.0  # seconds to unwind after a second signal
SIGNALED = 128  # exit code, and the number of the signal
WAKE = signal.SIGURG  # which is ignored by default
HEARD = b'\0'  # no number of a signal
ANSWER = 0.2  # seconds for the main thread to run the handler


class Terminated(SystemExit):
    """A second SIGTERM or SIGHUP: the program ends without a last save.

    It unwinds like Ctrl-C, so that the folder of the run can say how it ended.
    """

    def __init__(self, number: int) -> None:
        super().__init__(SIGNALED + number)
        self.number = number
        self.signal = signal.Signals(number).name

    def deliver(self) -> None:
        """Ends this process as if the signal had not been handled."""
        signal.signal(self.number, signal.SIG_DFL)
        os.kill(os.getpid(), self.number)


class StopSignals:
    """Context in which the first signal only sets `received`.

    A second one ends the program at once: SIGINT does what it did before the context
    was entered, the others raise Terminated unless they had a handler. A SIGTERM or
    SIGHUP within REPEAT seconds of the first signal, and a SIGINT within REPEAT_KEY
    seconds of another one, is no second one. Signals that are ignored (a background
    job, a worker whose launcher decides) stay ignored. Outside of the main thread,
    which is the only one that can receive signals, nothing is installed.

    A context inside of another one takes its signals, earlier ones included. Output is
    dropped, instead of raising, when its terminal or pipe vanishes in the context.

    `notify` is called with the name of the signal, inside of its handler: between any
    two instructions of the main thread, so it may take no lock that this thread holds
    (`queue.SimpleQueue.put` is made for it).
    """

    def __init__(self, notify: Callable[[str], Any] | None = None) -> None:
        self.received: str | None = None
        self._notify = notify
        self._requests = _StopRequests()
        self._previous: dict[int, Any] = {}
        self._ending = False  # at once
        self._inner: StopSignals | None = None
        self._outer: StopSignals | None = None
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> 'StopSignals':
        if threading.current_thread() is not threading.main_thread():
            return self
        self._outer = _innermost()
        if self._outer is not None:
            self._outer._inner = self
            if self._outer.received:
                try:
                    self._pass_on(self._outer.received)
                except BaseException:
                    self._outer._inner = None
                    raise
            return self
        self._stack.enter_context(lasting_output())
        self._stack.enter_context(_waking_the_main_thread())
        for number in WATCHED:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._previous[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._outer is not None:
            self._outer._inner = None
        while self._previous:
            number, handler = self._previous.popitem()
            _set_handler(number, handler)
        self._stack.close()

    def request(self, reason: str) -> None:
        """Asks for a clean end as a first signal does, for another reason."""
        if self.received is None:
            self._pass_on(reason)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.received is None:
            self._requests.is_second(number)
            self._pass_on(signal.Signals(number).name)
        elif self._requests.is_second(number) and not self._ending:
            self._ending = True  # What unwinds is not interrupted again.
            previous = self._previous[number]
            if not callable(previous):
                raise Terminated(number)
            previous(number, frame)

    def _pass_on(self, name: str) -> None:
        self.received = self.received or name
        if self._inner is not None:
            self._inner._pass_on(name)
        if self._notify:
            self._notify(name)


def end_quietly() -> None:
    """For a program that is about to end: the repeat of the signal that made it end
    does not change its exit code. Ctrl-C still ends one that does not get there."""
    # Ignored and not handled: Python puts its handlers away before it has ended.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


class _StopRequests:
    """Knows repeats of a signal from a second request."""

    def __init__(self) -> None:
        self._first: dict[int, float] = {}  # when signals came first

    def is_second(self, number: int) -> bool:
        """Takes note of a signal; whether it is to end the program at once."""
        now = time.monotonic()
        earlier = dict(self._first)
        self._first.setdefault(number, now)
        if not earlier:
            return False
        if number == signal.SIGINT:
            return now - earlier.get(number, -REPEAT_KEY) >= REPEAT_KEY
        return now - min(earlier.values()) >= REPEAT


def _innermost() -> StopSignals | None:
    """The innermost context that this process is in."""
    owners = (getattr(signal.getsignal(x), '__self__', None) for x in WATCHED)
    found = next((x for x in owners if isinstance(x, StopSignals)), None)
    while found is not None and found._inner is not None:
        found = found._inner
    return found


@contextlib.contextmanager
def _waking_the_main_thread() -> Iterator[None]:
    """Handlers run in the main thread, but the system may hand a signal to any other,
    and then a main thread that blocks sleeps on."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)  # as signal handlers demand

    def answer(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(OSError):  # closed, or full of answers
            theirs.send(HEARD)

    handler = signal.signal(WAKE, answer)
    previous = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    args = ours, threading.get_ident()
    thread = threading.Thread(target=_wake, args=args, name='signals', daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(previous)
        theirs.close()
        thread.join()
        ours.close()
        _set_handler(WAKE, handler)


def _wake(pipe: socket.socket, main: int) -> None:
    """Wakes the thread `main` for each watched signal whose number comes through the
    pipe, and ends the process if that thread is in code that cannot be interrupted and
    has not left AT_ONCE seconds after a second signal."""
    requests = _StopRequests()
    waking, deadline, last = False, math.inf, 0
    while True:
        left = max(0.001, deadline - time.monotonic())
        # Until it was heard: a signal that comes after Python has looked for signals
        # and before the system call begins to wait ends no wait.
        wait = min(left, ANSWER if waking else math.inf)
        pipe.settimeout(None if wait == math.inf else wait)
        try:
            byte = pipe.recv(1)
        except TimeoutError:
            if time.monotonic() >= deadline:
                os._exit(SIGNALED + last)
            signal.pthread_kill(main, WAKE)
            continue
        if not byte:
            return
        if byte == HEARD:
            waking = False
        elif byte[0] in WATCHED:
            waking, last = True, byte[0]
            if requests.is_second(last):
                deadline = min(deadline, time.monotonic() + AT_ONCE)
            signal.pthread_kill(main, WAKE)


def _set_handler(number: int, handler: Any) -> None:
    # None: set by code outside of Python, which cannot be put back.
    signal.signal(number, signal.SIG_DFL if handler is None else handler)
