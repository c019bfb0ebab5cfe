"""Handles: how the driver reaches an environment, in its own process or in another.

A handle takes one request at a time and gives one reply to it, so that the driver can
send a step to all environments before it waits for the first.
"""

import contextlib
import os
import pickle
import select
import signal
import subprocess
from collections.abc import Callable
from multiprocessing.connection import Pipe
from typing import Any, Protocol

import cloudpickle

from ...core.base import Env
from ...core.errors import EnvError
from ...processes.child_processes import Surroundings, kill_group, start_module
from ...processes.failure import Failure
from .host import EnvHost, Setup, error_of

__all__ = ['Handle', 'InlineHandle', 'ProcessHandle']

WORKER = 'embodied.envs.runtime.env_process'
CLOSE_SECONDS = 10.0  # for an environment to close before its process is killed


class Handle(Protocol):
    def request(self, request: str, *args: Any) -> None:
        """Starts the work."""

    def receive(self) -> Any:
        """The reply to the last request; what failed over there is raised here."""

    def hang_up(self) -> None:
        """Asks the environment to close, without waiting for it."""

    def close(self) -> None:
        """Hangs up and waits; without effect the second time."""


class InlineHandle:
    """An environment in this process; the work is done when the reply is asked for."""

    def __init__(self, make: Callable[[], Env], index: int) -> None:
        self._host = EnvHost(make)
        self._index = index
        self._pending: tuple[str, tuple] | None = None

    def request(self, request: str, *args: Any) -> None:
        self._pending = (request, args)

    def receive(self) -> Any:
        assert self._pending, 'receive() without request()'
        (request, args), self._pending = self._pending, None
        try:
            return self._host.answer(request, *args)
        except Exception as error:
            raise error_of(Failure.of(error), self._index, request) from error

    def hang_up(self) -> None:
        pass

    def close(self) -> None:
        try:
            self._host.close()
        except Exception as error:
            raise error_of(Failure.of(error), self._index, 'close') from error


class ProcessHandle:
    """An environment in a worker process of its own."""

    def __init__(self, make: Callable[[], Env], index: int) -> None:
        self._index = index
        self._pending = ''
        self._closed = False
        self._setup = Setup(Surroundings.here(), cloudpickle.dumps(make))
        self._pipe, theirs = Pipe()
        with theirs:
            self._process = start_module(WORKER, theirs.fileno())
        # Its forked children may hold the pipe open, so the process is watched too.
        self._pidfd = os.pidfd_open(self.pid) if hasattr(os, 'pidfd_open') else None
        self._poll = select.poll()
        self._poll.register(self._pipe, select.POLLIN)
        if self._pidfd is not None:
            self._poll.register(self._pidfd, select.POLLIN)

    @property
    def pid(self) -> int:
        """Process id of the worker."""
        return self._process.pid

    def request(self, request: str, *args: Any) -> None:
        if self._closed:
            raise EnvError(f'Environment {self._index} is closed.')
        if self._pending:
            raise EnvError(
                f'Environment {self._index} was interrupted in {self._pending}() and '
                f'cannot be used anymore. Close the driver and create a new one.'
            )
        self._pending = request
        # A worker that is gone is reported by receive(), which knows how it ended.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            if request == 'make':
                self._pipe.send(self._setup)
            self._pipe.send((request, args))

    def receive(self) -> Any:
        assert self._pending, 'receive() without request()'
        try:
            reply = pickle.loads(self._receive_bytes())
        except (EOFError, ConnectionResetError):
            death = self._death()
            self._pending = ''
            raise death from None
        request, self._pending = self._pending, ''
        if isinstance(reply, Failure):
            raise error_of(reply, self._index, request)
        return reply

    def _receive_bytes(self) -> bytes:
        if self._process.returncode is None:
            ready = dict(self._poll.poll())
            if self._pipe.fileno() in ready:
                return self._pipe.recv_bytes()
        raise EOFError

    def hang_up(self) -> None:
        self._closed = True
        self._pipe.close()

    def close(self) -> None:
        running = self._process.returncode is None
        self.hang_up()
        code = self._end()
        if running and code > 0:
            raise EnvError(
                f'Environment {self._index} failed in close(): its process ended with '
                f'exit code {code} and wrote the reason to the standard error.'
            )

    def _death(self) -> EnvError:
        code = self._end()
        if code < 0:
            how = f'was killed by signal {-code} ({signal.strsignal(-code)})'
        else:
            how = f'ended with exit code {code}'
        hint = ' The machine may be out of memory.' if code == -signal.SIGKILL else ''
        return EnvError(
            f'The worker process {self.pid} of environment {self._index} {how} in '
            f'{self._pending}().{hint}'
        )

    def _end(self) -> int:
        """Waits for the process, kills what remains of its group, returns its code."""
        if self._process.returncode is None:
            self._await_exit()
            kill_group(self.pid)
        if self._pidfd is not None:
            self._poll.unregister(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
        return self._process.wait()

    def _await_exit(self) -> None:
        if self._pidfd is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(CLOSE_SECONDS)
            return
        exited = select.poll()
        exited.register(self._pidfd, select.POLLIN)
        exited.poll(1000 * CLOSE_SECONDS)
