"""Batcher: collects rows of many clients and decides when they go."""

import collections
import dataclasses
from collections.abc import Callable, Hashable
from typing import Any, TypeAlias

import numpy as np

from ..codec import trees
from ..errors import MessageError, RefusedRows
from . import columnar as rows
from .jobs import Job

__all__ = ['Batcher', 'run_batch']

Call: TypeAlias = Callable[[list[Job], tuple], Any]


class Batcher:
    """The queue of one batched method. It is used by one thread at a time."""

    def __init__(self, batch: int, max_wait: float | Callable[[], float]) -> None:
        self._batch = batch
        self._max_wait = max_wait if callable(max_wait) else lambda: max_wait
        self._queue: collections.deque[Job] = collections.deque()
        self._rows = 0
        self._users: set[Hashable] = set()
        self._freed = 0.0  # when a batch could go again, after none could

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, job: Job) -> None:
        if job.rows > self._batch:
            raise MessageError(
                f'A message with {job.rows} rows does not fit into a batch of '
                f'{self._batch}. Send fewer rows, or bind with a larger batch.'
            )
        self._queue.append(job)
        self._rows += job.rows or 1
        self._users.add(job.client)

    def forget(self, client: Hashable) -> None:
        """Stops waiting for rows of this client; those that wait stay in the queue."""
        self._users.discard(client)

    def free(self, now: float) -> None:
        """A worker is free again, after all of them were busy.

        Clients that have just received an answer are about to send the next request.
        Without time for that, the clients of a slow method would split into groups
        that wait for each other.
        """
        self._freed = now

    def deadline(self) -> float | None:
        """When the oldest row has waited long enough for others."""
        if not self._queue:
            return None
        return max(self._queue[0].arrived, self._freed) + self._max_wait()

    def take(self, now: float) -> list[Job]:
        """The next batch if it is due: full, with rows of all clients, or overdue."""
        deadline = self.deadline()
        if deadline is None:
            return []
        if not (
            self._rows >= self._batch
            or self._users <= {job.client for job in self._queue}
            or now >= deadline
        ):
            return []
        jobs: list[Job] = []
        room = self._batch
        while self._queue and (self._queue[0].rows or 1) <= room:
            job = self._queue.popleft()
            room -= job.rows or 1
            jobs.append(job)
        self._rows -= self._batch - room
        return jobs


@dataclasses.dataclass
class Loaded:
    """A job and its arguments as leaves [rows, ...]."""

    job: Job
    structure: tuple
    leaves: list[np.ndarray]

    @property
    def signature(self) -> tuple:
        parts = [(leaf.dtype, leaf.shape[1:]) for leaf in self.leaves]
        return self.structure, tuple(parts)


def run_batch(jobs: list[Job], call: Call) -> None:
    """Runs a handler over the jobs and gives each its rows of the result.

    Jobs whose arguments differ in structure, dtype or shape run in calls of their own,
    so that a client with wrong arguments does not affect the others.
    """
    if _run_alike(jobs, call):
        return
    groups: dict[tuple, list[Loaded]] = {}
    for job in jobs:
        try:
            loaded = _load(job)
        except MessageError as e:
            job.fail(e)
        else:
            groups.setdefault(loaded.signature, []).append(loaded)
    for group in groups.values():
        members = [loaded.job for loaded in group]
        try:
            _scatter(members, call(members, _gather(group)))
        except Exception as e:  # noqa: BLE001 - sent to the clients
            _fail(members, call, e)


def _run_alike(jobs: list[Job], call: Call) -> bool:
    """Runs jobs that have one layout; returns False if they do not."""
    first = jobs[0]
    if not first.schema:
        return False
    if len({(job.schema, job.rows) for job in jobs}) != 1:
        return False
    try:
        layout = rows.layout_of(first.schema)
    except MessageError:
        return False  # The general way reports the error to each client.
    args = layout and rows.gather(layout, [job.data for job in jobs], first.rows)
    if not isinstance(args, tuple):
        return False
    try:
        value = call(jobs, args)
        replies = rows.scatter(value, len(jobs), first.rows)
        if replies is None:
            _scatter(jobs, value)
            return True
    except Exception as e:  # noqa: BLE001 - sent to the clients
        _fail(jobs, call, e)
        return True
    for job, reply in zip(jobs, replies, strict=True):
        job.succeed(reply)
    return True


def _fail(jobs: list[Job], call: Call, error: Exception) -> None:
    """Fails jobs; if only some rows were refused, runs the others again."""
    if not isinstance(error, RefusedRows):
        for job in jobs:
            job.fail(error)
        return
    others: list[Job] = []
    start = 0
    for job in jobs:
        stop = start + max(job.rows, 1)
        if error.rows.isdisjoint(range(start, stop)):
            others.append(job)
        else:
            job.fail(error.error)
        start = stop
    assert len(others) < len(jobs), 'Refused rows that no client has sent.'
    if others:
        run_batch(others, call)


def _load(job: Job) -> Loaded:
    leaves, structure = trees.flatten(job.load())
    arrays = []
    for leaf in leaves:
        array = np.asarray(leaf)
        if array.dtype.hasobject or array.dtype.kind in 'SU':
            raise MessageError(
                f'Only arrays and numbers can be batched, not {type(leaf).__name__}.'
            )
        if job.rows and array.shape[:1] != (job.rows,):
            raise MessageError(
                f'An array of shape {array.shape} in a message with {job.rows} rows. '
                f'Its first dimension must be the rows.'
            )
        arrays.append(array if job.rows else array[None])
    return Loaded(job, structure, arrays)


def _gather(group: list[Loaded]) -> tuple:
    if len(group) == 1:
        return trees.unflatten(group[0].structure, group[0].leaves)
    columns = zip(*(loaded.leaves for loaded in group), strict=True)
    return trees.unflatten(group[0].structure, [np.concatenate(c) for c in columns])


def _scatter(jobs: list[Job], value: Any) -> None:
    leaves, structure = trees.flatten(value)
    total = sum(max(job.rows, 1) for job in jobs)
    for leaf in leaves:
        if np.shape(leaf)[:1] != (total,):
            raise MessageError(
                f'The handler returned an array of shape {np.shape(leaf)} for '
                f'{total} rows. The first dimension of all results must be the rows.'
            )
    start = 0
    for job in jobs:
        stop = start + max(job.rows, 1)
        at = slice(start, stop) if job.rows else start
        job.succeed(trees.unflatten(structure, [leaf[at] for leaf in leaves]))
        start = stop
