"""Remote role: a process on some node of a Ray cluster, as its launcher sees it."""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .....processes.failure import Failure
from ...supervision.process import ENDED, PLACED, RoleEvent, RoleSpec
from ...supervision.role_failure import RoleFailure
from ...supervision.status import HEARTBEAT
from ...timeouts import SAY_WAITING
from ..optional_packages import require
from .cluster import Cluster
from .keeper import RoleReport

__all__ = ['SERVERS', 'RayRole']

SERVERS = {'agent': 'actor', 'replay': 'replay', 'logger': 'logger'}  # names of servers


class RayRole:
    """Places a role, starts it, and reports what its keeper reports.

    All that takes time is done by a thread, which ends with the role.

    registry: handle of the AddressRegistry of the run. port: of its server, if it has
    to be a certain one. witnesses: contents of files that the node has to see.
    """

    def __init__(
        self,
        name: str,
        spec: RoleSpec,
        log: Path,
        run_tag: str,
        notify: Callable[[RoleEvent], Any],
        shown: bool,
        cluster: Cluster,
        registry: Any,
        port: int = 0,
        witnesses: dict[str, str] | None = None,
    ):
        self.name = name
        self.pid = 0  # of the process, on its node
        self.node = ''
        self.asked = False
        self._ray = require('ray', 'ray')
        self._log = log
        self._start_args = name, spec, log, run_tag, shown, registry
        self._notify = notify
        self._cluster = cluster
        self._registry = registry
        self._port = port
        self._witnesses = witnesses or {}
        self._cpu_seconds = 0.0
        self._keeper: Any = None
        self._started = False
        self._cancelled = False
        self._failure: RoleFailure | None = None
        self._lock = threading.Lock()  # between the start and the end of the process
        self._thread = threading.Thread(
            target=self._work, name=f'ray-{name}', daemon=True
        )
        self._thread.start()

    def cpu_seconds(self) -> float:
        """As of the last report."""
        return self._cpu_seconds

    def ask(self, gone: Sequence[str] = (), reason: str = '') -> None:
        if not self.asked:
            self.asked = True
            self._end(lambda keeper: keeper.ask.remote(gone, reason))

    def kill(self, cause: str = '') -> None:
        self._end(lambda keeper: keeper.kill.remote(cause))

    def go_on(self) -> None:
        self._keeper.go_on.remote()

    def show_stacks(self) -> None:
        self._keeper.show_stacks.remote()

    def collect(self) -> RoleFailure | None:
        self._thread.join()
        return self._failure

    def _end(self, end_process: Callable[[Any], Any]) -> None:
        """Ends the process, or the attempt to place and start it."""
        with self._lock:
            self._cancelled = True
            if self._started:
                end_process(self._keeper)
            elif self._keeper is not None:
                self._ray.kill(self._keeper)

    # The thread.

    def _work(self) -> None:
        try:
            self._run()
        except self._ray.exceptions.RayActorError as error:
            self._cluster.forget(self.name)
            if self._started or not self._cancelled:
                self._failure = self._lost(str(error))
        except self._ray.exceptions.RayTaskError as error:
            self._failure = self._fail(Failure.of(error.cause))
        except Exception as error:  # noqa: BLE001 - reported to the launcher
            self._failure = self._fail(Failure.of(error))
        finally:
            if self._keeper is not None:
                self._ray.kill(self._keeper)
            self._notify(RoleEvent(self, ENDED))

    def _run(self) -> None:
        with self._lock:
            if self._cancelled:
                return
            self._keeper = self._cluster.make_keeper(self.name)
        with self._published(self._place()):
            with self._lock:
                if self._cancelled:
                    return
                start = self._keeper.start.remote(*self._start_args)
                self._started = True
            self.pid = self._ray.get(start)
            self._notify(RoleEvent(self, PLACED))
            listen = self._keeper.listen.remote
            while not self._pass_on(self._ray.get(listen(HEARTBEAT))):
                pass
            self._failure = self._ray.get(self._keeper.collect.remote())
            self._pass_on(self._ray.get(listen(0.0)))

    def _place(self) -> str:
        """Waits for a node and makes sure that it is suitable: an address there."""
        found = self._keeper.locate.remote(self._port)
        ready, _ = self._ray.wait([found], timeout=SAY_WAITING)
        if not ready:
            wants = self._cluster.describe(self.name)
            print(f'Waiting for a node for {self.name}: {wants}.', flush=True)
        placement = self._ray.get(found)
        node = self._cluster.node(placement.node)
        self.node = node.name
        if self._witnesses:
            self._ray.get(self._keeper.check_folders.remote(self._witnesses))
        self._cluster.hold(self.name, node)
        return placement.address

    @contextlib.contextmanager
    def _published(self, address: str) -> Iterator[None]:
        """Context in which the server of the role, if it has one, can be found."""
        server = SERVERS.get(self.name)
        if server is None:
            yield
            return
        self._ray.get(self._registry.publish.remote(server, address))
        try:
            yield
        finally:
            self._registry.withdraw.remote(server, address)

    def _pass_on(self, report: RoleReport) -> bool:
        """Reports what has happened; returns whether the process has ended."""
        self._cpu_seconds = report.cpu_seconds
        for what in report.events:
            if isinstance(what, bytes):
                sys.stdout.write(what.decode(errors='replace'))
                sys.stdout.flush()
            elif what != ENDED:
                self._notify(RoleEvent(self, what))
        return ENDED in report.events

    def _lost(self, details: str) -> RoleFailure:
        """The keeper is gone, and most likely its node with it."""
        where = f'the node {self.node}' if self.node else 'its node'
        return self._fail(
            Failure(
                kind='NodeLost',
                message=f'{where} is gone or has ended the process.\n{details}',
                place=self.node,
                own=True,
                transient=True,
            )
        )

    def _fail(self, failure: Failure) -> RoleFailure:
        return RoleFailure(self.name, self.pid, 1, self._log, failure)
