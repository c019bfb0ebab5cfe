"""Methods of a server: their worker threads, their order and their postfns.

The I/O thread of a backend passes jobs to `submit`, and calls `run_due` at `deadline`.
"""

import dataclasses
import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Hashable
from typing import Any

from embodied.core.errors import ConfigError

from ..interface import run_with_requests
from .batcher import Batcher, run_batch
from .jobs import Job

__all__ = ['Methods', 'Task']

log = logging.getLogger(__name__)


@dataclasses.dataclass
class Method:
    """One bound method and the state of its threads."""

    name: str
    workfn: Callable
    postfn: Callable | None
    workers: int
    once: bool
    batcher: Batcher | None
    idle: int
    tasks: queue.SimpleQueue = dataclasses.field(default_factory=queue.SimpleQueue)
    posts: queue.SimpleQueue = dataclasses.field(default_factory=queue.SimpleQueue)
    started: int = 0  # tasks, in the order of their requests
    posted: int = 0  # tasks whose postfn was queued
    ended: dict[int, 'Task'] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        # One task per worker and one more may wait for their postfn: a slow postfn
        # holds up the method, so that its queue stays short.
        self.slots = threading.Semaphore(self.workers + 1)


@dataclasses.dataclass
class Task:
    """What one worker does at a time: one request, or a batch of them."""

    method: Method
    jobs: list[Job]
    order: int
    infos: list[Any] = dataclasses.field(default_factory=list)

    def run(self) -> None:
        """Calls the handler and prepares the replies; never raises."""
        if self.method.batcher is None:
            self._run_single(self.jobs[0])
        else:
            run_batch(self.jobs, self._call)
        for job in self.jobs:
            try:
                job.seal()
            except Exception as e:  # noqa: BLE001 - sent to the client
                job.fail(e)
                job.seal()

    def _run_single(self, job: Job) -> None:
        try:
            job.succeed(self._call([job], job.load()))
        except Exception as e:  # noqa: BLE001 - sent to the client
            job.fail(e)

    def _call(self, jobs: list[Job], args: tuple) -> Any:
        value = run_with_requests(jobs, self.method.workfn, *args)
        if self.method.postfn is None:
            return value
        value, info = value
        self.infos.append(info)
        return value


class Methods:
    """All methods of a server and the threads that run them.

    post: called with every finished task in the thread that ran it. Any thread calls
    `finished` afterwards. fail: called with what a postfn, or `post`, raises.
    """

    def __init__(
        self,
        name: str,
        post: Callable[[Task], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self._name = name
        self._post = post
        self._fail = fail
        self._methods: dict[bytes, Method] = {}
        self._batched: list[Method] = []
        self._threads: list[threading.Thread] = []
        self._closing = False
        self._grown = False  # rows were added since batches were begun
        self._lock = threading.Lock()  # of batchers and of the order of postfns

    def bind(
        self,
        name: str,
        workfn: Callable,
        postfn: Callable | None,
        workers: int,
        once: bool,
        batcher: Batcher | None = None,
    ) -> None:
        if self._threads or name.encode() in self._methods or name.startswith('_'):
            raise ConfigError(
                f"Cannot bind '{name}': names are bound once, before start(), and do "
                f'not begin with an underscore.'
            )
        if workers < 1:
            raise ConfigError(f"'{name}' needs at least one worker (given: {workers}).")
        method = Method(name, workfn, postfn, workers, once, batcher, idle=workers)
        self._methods[name.encode()] = method
        if batcher is not None:
            self._batched.append(method)

    def start(self) -> None:
        for method in self._methods.values():
            for index in range(method.workers):
                self._thread(self._work, method, f'{method.name}-{index}')
            if method.postfn:
                self._thread(self._run_posts, method, f'{method.name}-post')

    def close(self, grace: float) -> None:
        """Ends the threads; those still busy after `grace` seconds are left behind."""
        self._closing = True
        for method in self._methods.values():
            for _ in range(method.workers):
                method.tasks.put(None)
                method.slots.release()
            method.posts.put(None)
        deadline = time.monotonic() + grace
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                log.warning('%s is still running and was left behind.', thread.name)

    def get(self, name: bytes) -> Method | None:
        return self._methods.get(name)

    def submit(self, method: Method, job: Job) -> None:
        """Queues a job; a MessageError means that it can never run."""
        if method.batcher is not None:
            with self._lock:
                method.batcher.add(job)
            self._grown = True
            return
        self._begin(method, [job])

    def settle(self) -> bool:
        """Begins the batches that are due since rows were submitted.

        It is called once per turn of the I/O thread. A worker that begins earlier takes
        the interpreter lock from that thread at every system call. Returns False:
        nothing is left to do.
        """
        if self._grown:
            self._grown = False
            self.run_due()
        return False

    def finished(self, task: Task) -> bool:
        """Ends a task whose replies were sent; whether `deadline` may have changed."""
        method = task.method
        if not method.postfn and method.batcher is None:
            return False
        with self._lock:
            if method.postfn:
                method.ended[task.order] = task
                while method.posted in method.ended:
                    method.posts.put(method.ended.pop(method.posted))
                    method.posted += 1
            if method.batcher is None:
                return False
            if not method.idle:
                method.batcher.free(time.monotonic())
            method.idle += 1
            self._dispatch(method)
            return len(method.batcher) > 0

    def forget(self, client: Hashable) -> None:
        """A client has disconnected: batches do not wait for it any more."""
        with self._lock:
            for method in self._batched:
                assert method.batcher is not None
                method.batcher.forget(client)
        self.run_due()

    def deadline(self) -> float:
        """When `run_due` has something to do, as time.monotonic(); inf for never.

        Nothing is due while all workers are busy; `finished` changes that.
        """
        first = math.inf
        if not self._batched:
            return first
        with self._lock:
            for method in self._batched:
                assert method.batcher is not None
                due = method.batcher.deadline() if method.idle else None
                if due is not None:
                    first = min(first, due)
        return first

    def run_due(self) -> None:
        """Begins batches that are due."""
        with self._lock:
            for method in self._batched:
                self._dispatch(method)

    def _dispatch(self, method: Method) -> None:
        assert method.batcher is not None
        while method.idle and (jobs := method.batcher.take(time.monotonic())):
            method.idle -= 1
            self._begin(method, jobs)

    def _begin(self, method: Method, jobs: list[Job]) -> None:
        method.tasks.put(Task(method, jobs, method.started))
        method.started += 1

    def _thread(self, target: Callable, method: Method, name: str) -> None:
        thread = threading.Thread(
            target=target, args=(method,), name=f'{self._name}-{name}', daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def _work(self, method: Method) -> None:
        while (task := method.tasks.get()) is not None:
            if method.postfn:
                method.slots.acquire()
            if self._closing:
                return
            task.run()
            self._hand_over(task)

    def _hand_over(self, task: Task) -> None:
        try:
            self._post(task)
        except Exception as e:  # noqa: BLE001 - raised by Server.wait
            log.error('Replies of %s failed.', task.method.name, exc_info=e)
            self._fail(e)

    def _run_posts(self, method: Method) -> None:
        assert method.postfn is not None
        while (task := method.posts.get()) is not None:
            for info in task.infos:
                try:
                    method.postfn(info)
                except Exception as e:  # noqa: BLE001 - raised by Server.wait
                    log.error('postfn of %s failed.', method.name, exc_info=e)
                    self._fail(e)
            method.slots.release()
