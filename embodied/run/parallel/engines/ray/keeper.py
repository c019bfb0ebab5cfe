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
from typing import NamedTuple

from .....core.errors import ConfigError
from .....processes.child_processes import Surroundings
from .....processes.guard import Guard
from .....transport import free_port
from ...address_book import Places
from ...supervision.failure import Failure
from ...supervision.health import Heartbeat
from ...supervision.process import ChildProcess, RoleSpec

__all__ = ['Keeper', 'News', 'Post']

OUTPUT_BYTES = 1 << 16  # of what a role prints, at once
LAST_WORDS = 5.0  # seconds for what a dead role has printed to arrive


class Post(NamedTuple):
    """Where a keeper is."""

    node: str  # id in the cluster
    address: str  # of the node, with a port that is free there


class News(NamedTuple):
    """What has happened to the role since the last ones."""

    notices: list[Heartbeat | str | bytes]  # bytes are output for the user
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
        self._news: queue.SimpleQueue[Heartbeat | str | bytes] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._places = Places()
        self._child: ChildProcess | None = None
        self._started = threading.Event()
        self._guard: Guard | None = None
        self._relaying: threading.Thread | None = None

    def locate(self, port: int = 0) -> Post:
        """Tells that there is room for the role; `port`, if it has to be that one."""
        import ray

        host = ray.util.get_node_ip_address()
        host = f'[{host}]' if ':' in host else host
        node = ray.get_runtime_context().get_node_id()
        return Post(node, f'{host}:{port or free_port()}')

    def check_folders(self, witnesses: Mapping[str, str]) -> None:
        """Refuses a node that does not see the files that the launcher has written."""
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
        order: RoleSpec,
        log: Path,
        mark: str,
        shown: bool,
        places: Places,
    ) -> int:
        """Starts the process of the role: its id."""
        path = dict.fromkeys([*order.surroundings.path, *sys.path])
        surroundings = Surroundings(
            parent=os.getpid(),
            die_with_parent=False,  # It would be with this thread.
            path=list(path),
            pythonpath=os.environ.get('PYTHONPATH'),
        )
        self._guard = Guard(mark)
        self._guard.__enter__()
        with self._lock, _setting(self._started):
            places = self._newest(places)
            order = order._replace(surroundings=surroundings, places=places)
            hear = lambda notice: self._news.put(notice.what)
            shown_to = self._relay() if shown else False
            self._child = ChildProcess(name, order, log, mark, hear, shown_to)
            if shown_to:
                os.close(shown_to)
        return self._child.pid

    def tell(self, places: Places) -> None:
        """Servers have moved."""
        with self._lock:
            self._places, child = self._newest(places), self._child
        if child is not None:
            child.tell(places)

    def listen(self, seconds: float) -> News:
        """Blocks until something happens to the role, but not for longer than that."""
        notices = []
        try:
            notices.append(self._news.get(timeout=seconds))
            while True:
                notices.append(self._news.get_nowait())
        except queue.Empty:
            return News(notices, self._role.cpu_seconds())

    def ask(self, gone: Sequence[str], reason: str) -> None:
        self._role.ask(gone, reason)

    def kill(self, cause: str) -> None:
        self._role.kill(cause)

    def go_on(self) -> None:
        self._role.go_on()

    def show_stacks(self) -> None:
        self._role.show_stacks()

    def collect(self) -> Failure | None:
        """Waits for the end, leaves nothing behind; how the role failed, if it did."""
        failure = self._role.collect()
        assert self._guard
        self._guard.__exit__(None, None, None)
        if self._relaying:
            self._relaying.join(LAST_WORDS)
        return failure

    @property
    def _role(self) -> ChildProcess:
        """The process, which may be about to be started by another thread."""
        self._started.wait()
        assert self._child, 'start has failed'
        return self._child

    def _newest(self, places: Places) -> Places:
        """Calls may overtake each other."""
        return max(places, self._places, key=lambda places: places.number)

    def _relay(self) -> int:
        """A descriptor; what is written to it goes to the launcher."""
        reader, writer = os.pipe()

        def relay() -> None:
            with os.fdopen(reader, 'rb', buffering=0) as file:
                while output := file.read(OUTPUT_BYTES):
                    self._news.put(output)

        self._relaying = threading.Thread(target=relay, daemon=True)
        self._relaying.start()
        return writer
