"""Children: roles in processes of their own, as their launcher sees them."""

import contextlib
import os
import signal
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle

from ...core import errors
from ...core.processes import Surroundings, start_module
from ...transport.errors import AddressInUse

__all__ = ['Child', 'Order', 'Report']

MODULE = 'embodied.run.parallel.child'
LAST_LINES = 10  # of a log that are shown when a role dies without a word
LAST_BYTES = 4096
MAX_TRACEBACK = 10_000  # characters, so that a report always fits into the pipe


class Order(NamedTuple):
    """First message to a child: how to become like the parent, and what to run."""

    surroundings: Surroundings
    call: bytes  # cloudpickled role and its arguments


class Report(NamedTuple):
    """The exception that ended a role, in a form that every process can read."""

    kind: str
    message: str
    traceback: str

    @classmethod
    def of(cls, error: BaseException) -> 'Report':
        text = ''.join(traceback.format_exception(error))
        message = str(error)[:MAX_TRACEBACK]
        return cls(type(error).__name__, message, text[-MAX_TRACEBACK:])

    def error(self, role: str) -> errors.DreamerError:
        """The error to raise where the role was started."""
        own = getattr(errors, self.kind, None)
        if own is not None and issubclass(own, errors.ConfigError):
            return own(self.message)  # says all there is to say
        if self.kind == AddressInUse.__name__:
            return AddressInUse(self.message)
        return errors.RoleError(
            f'The {role} failed: {self.kind}: {self.message}\n\n{self.traceback}'
        )


class Child:
    """One role in a process of its own; `on_exit(self)` is called when it has ended.

    Its output goes to `log`; with `shown`, what it prints goes to our own output.
    """

    def __init__(
        self,
        name: str,
        role: Callable[..., None],
        args: tuple,
        log: Path,
        on_exit: Callable[['Child'], Any],
        shown: bool = False,
    ) -> None:
        self.name = name
        self._log = log
        self._on_exit = on_exit
        self._asked = False  # to end
        self._pipe, theirs = Pipe()
        order = Order(Surroundings.here(), cloudpickle.dumps((role, args)))
        log.parent.mkdir(parents=True, exist_ok=True)
        with theirs, log.open('ab') as file:
            stdout = None if shown else file
            self._process = start_module(
                MODULE, theirs.fileno(), stdout=stdout, stderr=file
            )
        # A large order waits until the child reads; others can be started meanwhile.
        self._watcher = threading.Thread(
            target=self._watch, args=(order,), name=f'watch-{name}', daemon=True
        )
        self._watcher.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self) -> None:
        """Asks the role to end cleanly; a second time would end it at once."""
        if not self._asked:
            self._asked = True
            self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def collect(self) -> errors.DreamerError | None:
        """Waits for the end, leaves nothing behind; the error that caused it, if any.

        Whoever was asked to end before it was able to do so cleanly did as asked.
        """
        self._watcher.join()
        # As long as nobody has asked for the exit code, the id cannot be reused.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        code = self._process.wait()
        report = self._report()
        self._pipe.close()
        if report is not None:
            return report.error(self.name)
        if code == 0 or (self._asked and code == -signal.SIGTERM):
            return None
        return self._death(code)

    def _watch(self, order: Order) -> None:
        # A child that is gone already is noticed right below.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._pipe.send(order)
        # Not reaped yet, so that its id stays valid for signals to it.
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        self._on_exit(self)

    def _signal(self, number: int) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if number == signal.SIGKILL:
                    os.killpg(self.pid, number)
                else:
                    os.kill(self.pid, number)

    def _report(self) -> Report | None:
        try:
            return self._pipe.recv()
        except (EOFError, ConnectionResetError):
            return None

    def _death(self, code: int) -> errors.RoleError:
        if code < 0:
            how = f'was killed by signal {-code} ({signal.strsignal(-code)})'
        else:
            how = f'ended with exit code {code}'
        hint = ' The machine may be out of memory.' if code == -signal.SIGKILL else ''
        lines = '\n'.join(f'  {line}' for line in _last_lines(self._log))
        return errors.RoleError(
            f'The {self.name} (process {self.pid}) {how}.{hint}\n'
            f'{self._log} ends with:\n{lines}'
        )


def _last_lines(log: Path) -> list[str]:
    with log.open('rb') as file:
        file.seek(max(0, log.stat().st_size - LAST_BYTES))
        text = file.read().decode(errors='replace')
    return text.splitlines()[-LAST_LINES:] or ['(nothing)']
