"""Reference calls: what clients of the reference implementation send to the roles.

With `run.transport portal`, the roles answer these calls besides those of protocol.py,
which have more arguments:

    actor.act(obs)          obs with `envid` and `is_eval`; the actions, with `reset`
    replay.add_batch(trans) transitions [n, ...] with `envid` [n] and `is_eval` [n]; {}
    replay.sample_batch_*() the next batch
    logger.tran(trans)      transitions [n, ...] with `envid` [n] and `is_eval` [n]
    logger.add(metrics)     metrics by their full names

`replay.update(data)` is the same in both. Such clients send neither worker ids nor
serial numbers: a client that connects again is a new one, and repeats are not
recognized. At the end of the run calls get no answer, until the connection is closed.
"""

import collections
import hashlib
import secrets
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from ...core import base
from ...core.errors import RowsError
from ...core.step_keys import is_log
from ...transport import RefusedRows, Unanswered, current_requests

__all__ = ['ActorCalls', 'LoggerCalls', 'ReplayCalls']

MODES: tuple[base.Mode, ...] = ('train', 'eval')
WORKER_ID_BYTES = 16
MOST_ENVIRONMENTS = 100_000  # whose serial numbers are kept, through all connections
EPISODE_KEYS = ('reward', 'is_first', 'is_last')


class Callers:
    """Worker ids, streams and serial numbers for clients that send none."""

    def __init__(self) -> None:
        self._salt = secrets.token_bytes(WORKER_ID_BYTES)
        self._lock = threading.Lock()
        self._serials: collections.OrderedDict[tuple[str, int], int]
        self._serials = collections.OrderedDict()

    def worker_id(self, client: str) -> base.Array:
        """Bytes [16] that stand for a connection."""
        digest = hashlib.blake2b(
            self._salt + client.encode(), digest_size=WORKER_ID_BYTES
        )
        return np.frombuffer(digest.digest(), np.uint8)

    def streams(self, client: str, envids: base.Array) -> base.Array:
        """A number [n] for each environment of a connection."""
        seed = int.from_bytes(self.worker_id(client)[:8].tobytes(), 'little') >> 1
        return (seed ^ envids.astype(np.int64)).astype(np.int64)

    def serials(self, clients: Sequence[str], envids: base.Array) -> base.Array:
        """The next serial number [n] of each environment."""
        with self._lock:
            keys = zip(clients, envids.tolist(), strict=True)
            return np.array([self._count(key) for key in keys], np.int64)

    def _count(self, key: tuple[str, int]) -> int:
        serial = self._serials.pop(key, -1) + 1
        self._serials[key] = serial
        if len(self._serials) > MOST_ENVIRONMENTS:
            self._serials.popitem(last=False)
        return serial


class Rows:
    """The rows of one call, without the keys that say where they come from."""

    def __init__(self, given: Any) -> None:
        if not isinstance(given, dict) or 'envid' not in given:
            raise RowsError(
                "Rows are a dict of arrays with the key 'envid', and 'is_eval' for "
                'evaluation.'
            )
        values = {key: np.asarray(value) for key, value in given.items()}
        self.envids = values.pop('envid')
        self.is_eval = values.pop('is_eval', np.zeros(len(self.envids), bool))
        self.values = values
        for name, array in (('envid', self.envids), ('is_eval', self.is_eval)):
            if array.ndim != 1 or array.dtype.kind not in 'biu':
                raise RowsError(f"'{name}' is an integer or a bool for each row.")

    def split(self) -> list[tuple[base.Mode, base.Array, base.Batch]]:
        """The rows by mode: their numbers, and their values."""
        parts = []
        for mode in MODES:
            index = np.flatnonzero(self.is_eval.astype(bool) == (mode == 'eval'))
            if len(index):
                values = {key: value[index] for key, value in self.values.items()}
                parts.append((mode, index, values))
        return parts


class ActingRole(Protocol):
    """What is used of an Actor."""

    def check(self, mode: base.Mode, origin: Any, obs: Any) -> None: ...

    def note_refusal(self, worker: str, error: RowsError) -> None: ...

    def record(self, record: Any) -> None: ...

    def leave(self, worker_id: base.Array) -> None: ...


class ActorCalls:
    """Answers `act(obs)` for a batch of rows, each of any mode.

    act: calls the actor with mode, origin and observations, as its own workers do.
    """

    def __init__(self, actor: ActingRole, act: Callable[..., tuple[Any, Any]]) -> None:
        self._actor = actor
        self._act = act
        self._callers = Callers()
        self._recording = {mode: threading.Lock() for mode in MODES}

    def act(self, given: base.Batch) -> tuple[dict[str, Any], list[Any]]:
        """Actions for rows, and what to `record`."""
        rows = Rows(given)
        requests = current_requests()
        clients = [x.client for x in requests for _ in range(max(1, x.rows))]
        origin = self._origin(clients, rows.envids)
        parts = [
            (mode, index, {key: value[index] for key, value in origin.items()}, obs)
            for mode, index, obs in rows.split()
        ]
        for mode, index, source, obs in parts:
            self._check(mode, index, source, obs, clients)
        answer: dict[str, base.Array] = {}
        records = []
        for mode, index, source, obs in parts:
            reply, record = self._act(mode, source, obs)
            if record is None:
                self._end(origin['worker_id'])
            for row in index[reply['stop']]:
                self._note_replaced(clients[row], int(rows.envids[row]))
            for key, value in {**reply['acts'], 'reset': reply['reset']}.items():
                if key not in answer:
                    shape = (len(clients), *value.shape[1:])
                    answer[key] = np.zeros(shape, value.dtype)
                answer[key][index] = value
            records.append(record)
        return answer, records

    def or_ours(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        """Calls `act` for one argument, and `handler` for more of them."""
        return lambda *args: self.act(*args) if len(args) == 1 else handler(*args)

    def record(self, info: Any) -> None:
        """Records what `act` has returned, or an actor's own `act`."""
        for record in info if isinstance(info, list) else [info]:
            if record is not None:
                with self._recording[record.mode]:
                    self._actor.record(record)

    def _origin(self, clients: Sequence[str], envids: base.Array) -> base.Batch:
        ids = {client: self._callers.worker_id(client) for client in set(clients)}
        return {
            'envid': envids.astype(np.int32),
            'worker_id': np.stack([ids[client] for client in clients]),
            'serial': self._callers.serials(clients, envids),
        }

    def _check(
        self,
        mode: base.Mode,
        index: base.Array,
        origin: base.Batch,
        obs: base.Batch,
        clients: Sequence[str],
    ) -> None:
        """Raises RefusedRows, before anything has changed, for rows that do not fit."""
        try:
            self._actor.check(mode, origin, obs)
        except RowsError as error:
            refused = index[list(error.rows)] if error.rows else index
            for client in {clients[row] for row in refused}:
                self._actor.note_refusal(client, error)
            raise RefusedRows(refused.tolist(), error) from error

    def _end(self, worker_ids: base.Array) -> None:
        """The run is over, and these clients are not waited for."""
        for worker_id in np.unique(worker_ids, axis=0):
            self._actor.leave(worker_id)
        raise Unanswered('The run is over.')

    def _note_replaced(self, client: str, envid: int) -> None:
        error = RowsError(
            f'Another worker plays environment {envid} now, so the steps of this one '
            'are dropped. Give each environment of a run a number of its own.'
        )
        self._actor.note_refusal(client, error)


class ReplayCalls:
    """Answers the calls to replay; with more arguments, passes them to the service."""

    def __init__(self, service: Any) -> None:
        self._service = service
        self._callers = Callers()
        self._adding_eval = threading.Lock()
        self._next_report = {'report': 0, 'eval': 0}  # numbers of the next batches

    def add_batch(self, *args: Any) -> dict[str, Any]:
        if len(args) != 1:
            return self._service.add_batch(*args)
        rows = Rows(args[0])
        (request,) = current_requests()
        for mode, index, steps in rows.split():
            envids = rows.envids[index]
            streams = self._callers.streams(request.client, envids)
            serials = self._callers.serials([request.client] * len(index), envids)
            if mode == 'eval':
                self.add_batch_eval(steps, streams, serials)
            else:
                self._service.add_batch(steps, streams, serials)
        return {}

    def add_batch_eval(self, *args: Any) -> dict[str, Any]:
        with self._adding_eval:
            return self._service.add_batch_eval(*args)

    def sample_batch_train(self, *args: Any) -> base.Batch:
        number = args or (self._service.next_number,)
        return _unless_over(args, self._service.sample_batch_train(*number))

    def sample_batch_report(self, *args: Any) -> base.Batch:
        number = args or (self._count('report'),)
        return _unless_over(args, self._service.sample_batch_report(*number))

    def sample_batch_eval(self, *args: Any) -> base.Batch:
        number = args or (self._count('eval'),)
        return _unless_over(args, self._service.sample_batch_eval(*number))

    def _count(self, name: str) -> int:
        number = self._next_report[name]
        self._next_report[name] = number + self._service.settings.batch_size
        return number


class LoggerCalls:
    """Answers the calls to the logger; with more arguments, passes them on."""

    def __init__(self, service: Any) -> None:
        self._service = service
        self._callers = Callers()

    def add(self, *args: Any) -> None:
        metrics, prefix, steps = args if len(args) != 1 else (args[0], '', 0)
        self._service.add(metrics, prefix, steps)

    def tran(self, *args: Any) -> None:
        if len(args) != 1:
            self._service.tran(*args)
            return
        rows = Rows(args[0])
        (request,) = current_requests()
        followed = {
            key: value
            for key, value in rows.values.items()
            if key in EPISODE_KEYS or (is_log(key) and value.ndim == 1)
        }
        clients = [request.client] * len(rows.envids)
        followed['serial'] = self._callers.serials(clients, rows.envids)
        self._service.tran(followed, rows.envids, rows.is_eval.astype(bool), 0)


def _unless_over(given: tuple, batch: base.Batch) -> base.Batch:
    """The batch; a client that gives no number does not know what {} means."""
    if not batch and not given:
        raise Unanswered('The run is over.')
    return batch
