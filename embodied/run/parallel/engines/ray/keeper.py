"""Keeper: runs one role on a node of a cluster for a launcher that is somewhere else.

It is the class of a Ray actor: the launcher calls its methods, each in a thread of its
own. The role is the same child process as on one machine and ends with the keeper.
"""

import contextlib
import os
import queue
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .....core.errors import ConfigError
from .....processes.child_processes import Surroundings
from .....processes.guard import Guard
from .....transport import free_port
from ... import address_book
from ...supervision.health import Heartbeat
from ...supervision.process import ChildProcess, RoleSpec
from ...supervision.role_failure import RoleFailure
from ...timeouts import LAST_OUTPUT

__all__ = ['Keeper', 'RoleReport', 'Placement']

OUTPUT_BYTES = 1 << 16  # of what a role prints, at once


class Placement(NamedTuple):
    """Where a keeper is."""

    node: str  # id in the cluster
    address: str  # of the node, with a port that is free there


class RoleReport(NamedTuple):
    """What has happened to the role since the last call of `listen`."""

    events: list[Heartbeat | str | bytes]  # bytes are output for the user
    cpu_seconds: float


@contextlib.contextmanager
def _setting(event: threading.Event) -> Iterator[None]:
    """Context after which the event is set, whatever happens in it."""
    try:
        yield
    finally:
        event.set()


class Keeper:
    """Owns the process of a role, from `start` to `collect`."""

    def __init__(self) -> None:
        self._events: queue.SimpleQueue[Heartbeat | str | bytes] = queue.SimpleQueue()
        self._child: ChildProcess | None = None
        self._started = threading.Event()
        self._resources = contextlib.ExitStack()  # that the process needs
        self._relaying: threading.Thread | None = None

    def locate(self, port: int = 0) -> Placement:
        """Returns once there is room for the role; `port`, if its server needs it."""
        import ray

        host = ray.util.get_node_ip_address()
        host = f'[{host}]' if ':' in host else host
        node = ray.get_runtime_context().get_node_id()
        return Placement(node, f'{host}:{port or free_port()}')

    def check_folders(self, witnesses: Mapping[str, str]) -> None:
        """Raises ConfigError if the node does not see the files of the launcher."""
        for path, content in witnesses.items():
            try:
                seen = Path(path).read_text()
            except OSError:
                seen = ''
            if seen != content:
                raise ConfigError(
                    f'{Path(path).parent} is not the same folder on this node '
                    f'({os.uname().nodename}) as where the run was started, so what is '
                    'kept there would be lost with a node. Put --logdir and '
                    '--replay.dir on a file system that all nodes share, or say '
                    '--ray.storage pinned to keep agent, replay and logger where they '
                    'are.'
                )

    def start(
        self,
        name: str,
        spec: RoleSpec,
        log: Path,
        run_tag: str,
        shown: bool,
        registry: Any,
    ) -> int:
        """Starts the process of the role and returns its id.

        registry: handle of the AddressRegistry of the run.
        """
        path = dict.fromkeys([*spec.surroundings.path, *sys.path])
        surroundings = Surroundings(
            parent=os.getpid(),
            die_with_parent=False,  # It would be with this thread.
            path=list(path),
            pythonpath=os.environ.get('PYTHONPATH'),
        )
        with _setting(self._started):
            self._resources.enter_context(Guard(run_tag))
            find = lambda name: _find(registry, name)
            variables = self._resources.enter_context(address_book.serve(find))
            environ = {**spec.environ, **variables}
            spec = spec._replace(surroundings=surroundings, environ=environ)
            notify = lambda event: self._events.put(event.what)
            shown_to = self._relay() if shown else False
            self._child = ChildProcess(name, spec, log, run_tag, notify, shown_to)
            if shown_to:
                os.close(shown_to)
        return self._child.pid

    def listen(self, seconds: float) -> RoleReport:
        """Blocks until something happens to the role, for `seconds` at most."""
        events = []
        try:
            events.append(self._events.get(timeout=seconds))
            while True:
                events.append(self._events.get_nowait())
        except queue.Empty:
            return RoleReport(events, self._role.cpu_seconds())

    def ask(self, gone: Sequence[str], reason: str) -> None:
        self._role.ask(gone, reason)

    def kill(self, cause: str) -> None:
        self._role.kill(cause)

    def go_on(self) -> None:
        self._role.go_on()

    def show_stacks(self) -> None:
        self._role.show_stacks()

    def collect(self) -> RoleFailure | None:
        """Waits for the end and releases everything; how the role failed, if so."""
        failure = self._role.collect()
        self._resources.close()
        if self._relaying:
            self._relaying.join(LAST_OUTPUT)
        return failure

    @property
    def _role(self) -> ChildProcess:
        """The process, which another thread may just be starting."""
        self._started.wait()
        assert self._child, 'start has failed'
        return self._child

    def _relay(self) -> int:
        """A descriptor; what is written to it is sent to the launcher."""
        reader, writer = os.pipe()

        def relay() -> None:
            with os.fdopen(reader, 'rb', buffering=0) as file:
                while output := file.read(OUTPUT_BYTES):
                    self._events.put(output)

        self._relaying = threading.Thread(target=relay, daemon=True)
        self._relaying.start()
        return writer


def _find(registry: Any, name: str) -> str:
    """Where a server is; blocks until that is known."""
    import ray

    return ray.get(registry.find.remote(name))
