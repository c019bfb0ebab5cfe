"""Groups: the environments of one worker process, which do not wait for each other."""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ....core.base import Env
from ....envs.runtime.handles import InlineHandle
from ....envs.runtime.host import EnvInfo
from ....processes.timeline import Timeline
from ..supervision.health import Health
from ..timeouts import ENVS_CLOSE
from .worker_usage import StepTimes

__all__ = ['Group', 'InlineGroup', 'Row', 'ThreadGroup', 'make_group']

Action = dict[str, Any]
Makes = Sequence[Callable[[], Env]]
Row = tuple[int, dict[str, Any]]  # position in the group, observation

GATHER_SECONDS = 0.001  # that ready rows wait for those of quick neighbors
WAKE: tuple[int, Any] = (-1, None)  # in the place of a row, to end the waiting


class Group(Protocol):
    """Environments at positions 0, 1, ...; each has one step to take at a time.

    A vector environment is alone in its group, at position 0. `times` is how long steps
    take, of all members of a vector environment together.
    """

    infos: list[EnvInfo]
    times: StepTimes

    def send(self, position: int, action: Action) -> None:
        """Starts a step."""

    def receive(self, limit: int) -> list[Row]:
        """Blocks until some steps are done; up to `limit` of them, ready together."""

    def wake(self) -> None:
        """Lets `receive` return, maybe without rows. Thread-safe."""

    def close(self) -> None:
        """Closes the environments."""


def make_group(
    makes: Makes,
    envids: Sequence[int],
    health: Health,
    vector: bool = False,
    timeline: Timeline | None = None,
) -> Group:
    """A single environment runs in the calling thread, several have one each.

    The first factory may make a vector environment; the others are not called then.
    vector: it does, so it also runs in the calling thread.
    """
    kind = InlineGroup if vector or len(makes) == 1 else ThreadGroup
    return kind(makes, envids, health, timeline or Timeline())


class InlineGroup:
    """One environment, single or vector, which steps in the thread that calls
    `receive`."""

    def __init__(
        self, makes: Makes, envids: Sequence[int], health: Health, timeline: Timeline
    ):
        self.times = StepTimes()
        self._health = health
        self._handle = InlineHandle(makes[0], envids[0])
        self._handle.request('make')
        with health.busy():
            self.infos = [self._handle.receive()]
        self._step = timeline.wrap('step', self.times.timed(self._handle.receive))

    def send(self, position: int, action: Action) -> None:
        self._handle.request('step', action)

    def receive(self, limit: int) -> list[Row]:
        with self._health.busy():
            return [(0, self._step())]

    def wake(self) -> None:
        pass

    def close(self) -> None:
        self._handle.close()


class ThreadGroup:
    """Several environments, each in one thread from its making to its closing.

    So a slow step or reset holds up no other environment, and environments that are
    tied to a thread, as renderers are, work. An environment that needs the main thread
    must be alone in its worker.
    """

    def __init__(
        self, makes: Makes, envids: Sequence[int], health: Health, timeline: Timeline
    ):
        self.times = StepTimes()
        self._timeline = timeline
        self._health = health
        self._results: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._requests: list[queue.SimpleQueue] = [queue.SimpleQueue() for _ in makes]
        self._pending = 0  # requests whose results were not taken yet
        self._lock = threading.Lock()  # of that number
        self._threads = [
            threading.Thread(
                target=self._serve,
                args=(position, InlineHandle(make, envid)),
                name=f'env{envid}',
                daemon=True,
            )
            for position, (make, envid) in enumerate(zip(makes, envids, strict=True))
        ]
        try:
            self.infos = self._make(self._threads[:1])
            if not self.infos[0].members:
                self.infos += self._make(self._threads[1:])
        except BaseException:
            self.close()
            raise

    def send(self, position: int, action: Action) -> None:
        self._request(position, 'step', action)

    def receive(self, limit: int) -> list[Row]:
        rows = [self._take()]
        deadline = time.perf_counter() + GATHER_SECONDS
        with contextlib.suppress(queue.Empty):
            while self._pending and len(rows) < limit:
                rows.append(self._take(max(0.0, deadline - time.perf_counter())))
        return [row for row in rows if row is not WAKE]

    def wake(self) -> None:
        self._results.put(WAKE)

    def close(self) -> None:
        for requests in self._requests:
            requests.put(None)
        deadline = time.monotonic() + ENVS_CLOSE
        for thread in self._threads:
            if thread.ident is None:
                continue  # not needed
            thread.join(max(0.0, deadline - time.monotonic()))
        while not self._results.empty():
            self._take()  # raises errors

    def _make(self, threads: Sequence[threading.Thread]) -> list[EnvInfo]:
        """Makes the environments of these threads at the same time."""
        for thread in threads:
            thread.start()
            self._request(self._threads.index(thread), 'make')
        infos = dict(self._take() for _ in threads)
        return [infos[position] for position in sorted(infos)]

    def _request(self, position: int, *request: Any) -> None:
        with self._lock:
            self._pending += 1
        self._requests[position].put(request)

    def _take(self, timeout: float | None = None) -> tuple[int, Any]:
        row = self._results.get(timeout=timeout)
        if row is WAKE:
            return row
        position, result = row
        with self._lock:
            self._pending -= 1
        if isinstance(result, BaseException):
            raise result
        return position, result

    def _serve(self, position: int, handle: InlineHandle) -> None:
        """Answers requests until there is none; the results are taken by `_take`."""
        step = self._timeline.wrap('step', self.times.timed(handle.receive))
        while (request := self._requests[position].get()) is not None:
            handle.request(*request)
            self._put(position, step if request[0] == 'step' else handle.receive)
        self._put(position, handle.close)

    def _put(self, position: int, work: Callable[[], Any]) -> None:
        try:
            with self._health.busy(alone=True):
                result = work()
            self._results.put((position, result))
        except BaseException as error:  # noqa: BLE001 (raised by `_take`)
            self._results.put((position, error))
