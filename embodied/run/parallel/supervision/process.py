"""Processes of roles, as their launcher sees them."""

import contextlib
import datetime
import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle

from ....processes import cpu, lineage
from ....processes.child_processes import Surroundings, start_module
from ..address_book import Places
from .failure import FIRST_WORDS, Failure, Report
from .health import Heartbeat
from .role_logs import LogWriter

__all__ = [
    'ENDED',
    'PLACED',
    'SHOW_STACKS',
    'STOPPED',
    'ChildProcess',
    'End',
    'RoleEvent',
    'RoleSpec',
]

MODULE = 'embodied.run.parallel.supervision.child_main'
ENDED, STOPPED = 'ended', 'stopped'
PLACED = 'placed'  # on a machine, which took its time
VMSTAT = Path('/proc/vmstat')
SHOW_STACKS = signal.SIGUSR1  # asks a child to write to its log where it is
LAST_WORDS = 5.0  # seconds for what a dead child has sent to arrive


class RoleSpec(NamedTuple):
    """First message to a child: how to become like the parent, and what to run."""

    surroundings: Surroundings
    call: bytes  # cloudpickled role and its arguments
    places: Places = Places()
    environ: Mapping[str, str] = {}  # variables that other processes must not see

    @classmethod
    def of(cls, role: Callable[..., None], args: tuple) -> 'RoleSpec':
        return cls(Surroundings.here(), cloudpickle.dumps((role, args)))


class End(NamedTuple):
    """Message to a child: end cleanly, without waiting for roles that are gone."""

    gone: Sequence[str] = ()
    reason: str = ''  # what the launcher was asked by


class RoleEvent(NamedTuple):
    """Something that a role does, or that happens to it."""

    role: Any  # the ChildProcess
    what: Heartbeat | str  # ENDED, STOPPED, PLACED


class ChildProcess:
    """One role in a process of its own; `notify` is called with each RoleEvent of it.

    Its output goes to `log`; with `shown`, what it prints goes to our own output, or to
    the descriptor that it is. All its descendants carry `mark` and end with it.
    """

    def __init__(
        self,
        name: str,
        order: RoleSpec,
        log: Path,
        mark: str,
        notify: Callable[[RoleEvent], Any],
        shown: bool | int = False,
    ) -> None:
        self.name = name
        self._log = log
        self._mark = mark
        self._notify = notify
        self._asked = False  # to end
        self._oom_kills = _oom_kills()
        self._cause = ''  # why we have killed it
        self._report: Report | None = None
        self._ordered = threading.Event()
        self._pipe, theirs = Pipe()
        self._sending = threading.Lock()
        now = datetime.datetime.now().isoformat(sep=' ', timespec='seconds')
        self._output = LogWriter(log, f'{FIRST_WORDS} at {now}\n'.encode())
        with theirs, contextlib.ExitStack() as stack:
            stack.callback(self._output.close, LAST_WORDS)
            stack.callback(self._output.start)
            stdout = None if shown is True else shown or self._output
            self._process = start_module(
                MODULE,
                theirs.fileno(),
                env={lineage.MARK: mark},
                stdout=stdout,
                stderr=self._output,
            )
            stack.pop_all()
        self._output.start()
        self._listener = self._thread(self._listen, order)
        self._watcher = self._thread(self._watch)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def asked(self) -> bool:
        """Whether it was asked to end."""
        return self._asked

    @property
    def node(self) -> str:
        return ''

    def cpu_seconds(self) -> float:
        return cpu.of_family(self.pid)

    def tell(self, places: Places) -> None:
        """Servers have moved."""
        self._ordered.wait()
        self._send(places)

    def ask(self, gone: Sequence[str] = (), reason: str = '') -> None:
        """Asks the role to end cleanly; a second time would end it at once."""
        if not self._asked:
            self._asked = True
            # Not by a signal, of which the libraries inside may think otherwise, and
            # not from here: the pipe of a child that does not listen may be full.
            self._thread(self._send, End(gone, reason))
            self._signal(signal.SIGCONT)  # in case that it is stopped

    def kill(self, cause: str = '') -> None:
        """Ends it at once, and its process group with it."""
        self._cause = cause
        self._signal(signal.SIGKILL)

    def go_on(self) -> None:
        """After somebody has stopped it."""
        self._signal(signal.SIGCONT)

    def show_stacks(self) -> None:
        """Makes it write to its log where its threads are."""
        self._signal(SHOW_STACKS)

    def collect(self) -> Failure | None:
        """Waits for the end, leaves nothing behind; how it failed, if it did.

        Whoever was asked to end before it was able to do so cleanly did as asked.
        """
        self._watcher.join()
        # As long as nobody has asked for the exit code, the id cannot be reused.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        code = self._process.wait()
        lineage.end(self._mark)
        self._listener.join(LAST_WORDS)
        self._hang_up()
        self._output.close(LAST_WORDS)
        if code == 0 or (self._asked and code == -signal.SIGTERM):
            return None
        cause = self._cause
        if code == -signal.SIGKILL and not cause and _oom_kills() > self._oom_kills:
            cause = 'killed because the machine was out of memory'
        return Failure(self.name, self.pid, code, self._log, self._report, cause)

    def _hang_up(self) -> None:
        """Ends what other threads do with the pipe, and closes it."""
        end = socket.socket(fileno=self._pipe.fileno())
        with contextlib.suppress(OSError):  # The other end is gone already.
            end.shutdown(socket.SHUT_RDWR)
        end.detach()
        self._listener.join()
        # None of them may be in the middle of a call: the number of the descriptor is
        # soon that of another file.
        with self._sending:
            self._pipe.close()

    def _thread(self, target: Callable[..., None], *args: Any) -> threading.Thread:
        name = f'{target.__name__.strip("_")}-{self.name}'
        thread = threading.Thread(target=target, args=args, name=name, daemon=True)
        thread.start()
        return thread

    def _listen(self, order: RoleSpec) -> None:
        self._send(order)
        self._ordered.set()
        # A child that is gone is noticed by the other thread.
        with contextlib.suppress(OSError, EOFError):
            while True:
                message = self._pipe.recv()
                if isinstance(message, Report):
                    self._report = message
                else:
                    self._notify(RoleEvent(self, message))

    def _send(self, message: RoleSpec | Places | End) -> None:
        with contextlib.suppress(OSError), self._sending:
            self._pipe.send(message)

    def _watch(self) -> None:
        """Tells of the end, and of stops before."""
        while True:
            # Not reaped, so that its id stays valid for signals to it.
            states = os.WEXITED | os.WSTOPPED | os.WNOWAIT
            info = os.waitid(os.P_PID, self.pid, states)
            assert info
            if info.si_code != os.CLD_STOPPED:
                self._notify(RoleEvent(self, ENDED))
                return
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG)
            self._notify(RoleEvent(self, STOPPED))

    def _signal(self, number: int) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if number == signal.SIGKILL:
                    os.killpg(self.pid, number)
                else:
                    os.kill(self.pid, number)


def _oom_kills() -> int:
    """Processes that the kernel has killed for want of memory since the boot."""
    if not VMSTAT.exists():
        return 0
    lines = (line.split() for line in VMSTAT.read_text().splitlines())
    return next((int(value) for name, value in lines if name == 'oom_kill'), 0)
