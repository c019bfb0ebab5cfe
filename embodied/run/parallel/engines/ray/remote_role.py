"""RoleProcess on Ray: what a launcher sees of a process on some node of the cluster."""

import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...address_book import Places
from ...supervision.failure import Failure, Report
from ...supervision.process import ENDED, PLACED, RoleEvent, RoleSpec
from ...supervision.status import HEARTBEAT
from ..optional_packages import require
from .cluster import Cluster
from .keeper import News
from .places import Book

__all__ = ['SERVERS', 'RayRole']

SERVERS = {'agent': 'actor', 'replay': 'replay', 'logger': 'logger'}  # names of servers
NOTICE_SECONDS = 5.0  # without a node until we say what we wait for


class RayRole:
    """Places a role, starts it, and passes on what its keeper tells.

    All that takes time is done by a thread, which outlives the role by nothing.

    port: of its server, if it has to be that one. witnesses: contents of files that
    the node has to see.
    """

    def __init__(
        self,
        name: str,
        order: RoleSpec,
        log: Path,
        mark: str,
        notify: Callable[[RoleEvent], Any],
        shown: bool,
        cluster: Cluster,
        book: Book,
        port: int = 0,
        witnesses: dict[str, str] | None = None,
    ):
        self.name = name
        self.pid = 0  # of the process, on its node
        self.node = ''
        self.asked = False
        self._ray = require('ray', 'ray')
        self._parts = name, order, log, mark, shown
        self._notify = notify
        self._cluster = cluster
        self._book = book
        self._port = port
        self._witnesses = witnesses or {}
        self._cpu_seconds = 0.0
        self._keeper: Any = None
        self._started = False
        self._cancelled = False
        self._failure: Failure | None = None
        self._lock = threading.Lock()  # between those who end the role and its start
        self._thread = threading.Thread(
            target=self._work, name=f'ray-{name}', daemon=True
        )
        self._thread.start()

    def cpu_seconds(self) -> float:
        """As of the last news."""
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

    def collect(self) -> Failure | None:
        self._thread.join()
        return self._failure

    def _end(self, tell: Callable[[Any], Any]) -> None:
        """Ends the process, or the waiting for a place where there could be one."""
        with self._lock:
            self._cancelled = True
            if self._started:
                tell(self._keeper)
            elif self._keeper is not None:
                self._ray.kill(self._keeper)
        self._book.wake()

    # The thread.

    def _work(self) -> None:
        try:
            self._run()
        except self._ray.exceptions.RayActorError as error:
            self._cluster.forget(self.name)
            if self._started or not self._cancelled:
                self._failure = self._lost(str(error))
        except self._ray.exceptions.RayTaskError as error:
            self._failure = self._fail(Report.of(error.cause))
        except Exception as error:  # noqa: BLE001 - told to the launcher
            self._failure = self._fail(Report.of(error))
        finally:
            if self._keeper is not None:
                self._ray.kill(self._keeper)
            self._notify(RoleEvent(self, ENDED))

    def _run(self) -> None:
        with self._lock:
            if self._cancelled:
                return
            self._keeper = self._cluster.make_keeper(self.name)
        self._settle()
        self._book.follow(self._tell)
        try:
            places = self._book.await_all(lambda: self._cancelled)
            with self._lock:
                if self._cancelled:
                    return
                start = self._keeper.start.remote(*self._parts, places)
                self._started = True
            self.pid = self._ray.get(start)
            self._notify(RoleEvent(self, PLACED))
            while not self._hear(self._ray.get(self._keeper.listen.remote(HEARTBEAT))):
                pass
            self._failure = self._ray.get(self._keeper.collect.remote())
            self._hear(self._ray.get(self._keeper.listen.remote(0.0)))
        finally:
            self._book.leave(self._tell)

    def _settle(self) -> None:
        """Waits for a node, makes sure that it will do, and makes its address known."""
        found = self._keeper.locate.remote(self._port)
        ready, _ = self._ray.wait([found], timeout=NOTICE_SECONDS)
        if not ready:
            wants = self._cluster.describe(self.name)
            print(f'Waiting for a node for {self.name}: {wants}.', flush=True)
        post = self._ray.get(found)
        place = self._cluster.node(post.node)
        self.node = place.name
        if self._witnesses:
            self._ray.get(self._keeper.check_folders.remote(self._witnesses))
        self._cluster.hold(self.name, place)
        if self.name in SERVERS:
            self._book.publish(SERVERS[self.name], post.address)

    def _hear(self, news: News) -> bool:
        """Passes on what has happened; whether the process has ended."""
        self._cpu_seconds = news.cpu_seconds
        for what in news.notices:
            if isinstance(what, bytes):
                sys.stdout.write(what.decode(errors='replace'))
                sys.stdout.flush()
            elif what != ENDED:
                self._notify(RoleEvent(self, what))
        return ENDED in news.notices

    def _tell(self, places: Places) -> None:
        self._keeper.tell.remote(places)

    def _lost(self, details: str) -> Failure:
        """The keeper is gone, and most likely its node with it."""
        where = f'the node {self.node}' if self.node else 'its node'
        return self._fail(
            Report(
                kind='NodeLost',
                message=f'{where} is gone or has ended the process.\n{details}',
                traceback='',
                place=self.node,
                own=True,
                final=False,
                transient=True,
            )
        )

    def _fail(self, report: Report) -> Failure:
        name, _, log, _, _ = self._parts
        return Failure(name, self.pid, 1, log, report)
