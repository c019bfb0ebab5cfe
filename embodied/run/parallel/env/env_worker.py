"""Environment worker: steps a group of environments with actions of the actor."""

import functools
import os
from typing import Any

import numpy as np

from ....core.base import Batch, Spaces
from ....core.errors import RowsError
from ....envs.runtime.stacking import check_infos, stack
from ....transport import ClientInterface, Future, RemoteError, TransportError
from ..context import RoleContext
from ..settings import WorkerPlan
from .group import Group, Row
from .worker_usage import WorkerUsage

__all__ = ['EnvWorker', 'answer_of', 'says_stop', 'zeros_of']

WORKER_ID_BYTES = 16
ENDLESS = -1  # episodes; counted down from here, it never becomes zero


class EnvWorker:
    """Sends the observations of environments that are ready, and applies the actions.

    It waits for the answer before it sends the next message, with all environments that
    are ready by then: few messages are cheaper than many. It does not wait if the actor
    is `far`, since environments that are ready a little later would wait for a whole
    round trip.

    The actor recognizes messages that are sent again after a lost connection: rows have
    a serial number per environment, and a worker id that is new for every worker.
    """

    def __init__(
        self,
        group: Group,
        plan: WorkerPlan,
        context: RoleContext,
        far: bool = False,
    ):
        check_infos(group.infos)
        self._group = group
        self._is_eval = plan.is_eval
        self._far = far and len(plan.envids) > 1
        self._method = 'act_eval' if plan.is_eval else 'act'
        self._health = context.health
        self._limit = context.settings.rows_limit  # The actor takes no larger messages.
        self._eval_eps = context.settings.eval_eps
        self._obs_space = group.infos[0].obs_space
        count = len(plan.envids)
        self._envids = np.array(plan.envids, np.int32)
        worker_id = np.frombuffer(os.urandom(WORKER_ID_BYTES), np.uint8)
        self._worker_ids = np.tile(worker_id, (count, 1))
        self._serials = np.zeros(count, np.int64)
        self._usage = WorkerUsage(context.settings, group.times)
        self._answer_of = context.timeline.wrap('act', answer_of)
        zeros = zeros_of(group.infos[0].act_space)
        self._first_action = {**zeros, 'reset': np.bool_(True)}

    def run(self, actor: ClientInterface) -> None:
        """Plays until the actor stops the worker."""
        try:
            if self._is_eval:
                self._evaluate(actor)
            else:
                self._play(actor, ENDLESS)
        finally:
            # Without waiting for the answer: the actor may end as soon as it knows.
            actor.call('leave', self._worker_ids[0])

    def _evaluate(self, actor: ClientInterface) -> None:
        """Plays some episodes in each environment whenever an evaluation is due."""
        key, period = (self._worker_ids[0], int(self._envids[0])), -1
        while True:
            due = actor.call('evaluate', *key, period).result()
            if due['stop'] or not self._play(actor, self._eval_eps):
                return
            period = due['period']

    def _play(self, actor: ClientInterface, episodes: int) -> bool:
        """Plays so many episodes in each environment; False if the actor stops it."""
        left = np.full(len(self._envids), episodes)
        for position in range(len(left)):
            self._group.send(position, self._first_action)
        pending: list[Future] = []
        while left.any():
            rows = self._group.receive(self._limit)
            for position, obs in rows:
                left[position] -= bool(obs['is_last'])
            if rows:
                goes_on = [bool(left[position]) for position, _ in rows]
                pending.append(self._ask(actor, rows, goes_on))
            done = [future for future in pending if future.is_complete()]
            if any(says_stop(future) for future in done):
                return False
            pending = [future for future in pending if future not in done]
        return not any(says_stop(future) for future in pending)

    def _ask(
        self, actor: ClientInterface, rows: list[Row], goes_on: list[bool]
    ) -> Future:
        """Sends rows, and applies the answer to the environments that go on."""
        future = self._send(actor, rows)
        apply = functools.partial(self._apply, rows, goes_on)
        if self._far:
            future.add_done_callback(apply)
        else:
            self._answer_of(future)
            apply(future)
        return future

    def _apply(self, rows: list[Row], goes_on: list[bool], future: Future) -> None:
        """Starts steps with the actions of an answer. Thread-safe."""
        try:
            answer = future.result()
        except TransportError:
            self._group.wake()  # for `_play` to raise it
            return
        self._health.advance()
        if answer['stop'].any():
            self._group.wake()
            return
        for index, (position, _) in enumerate(rows):
            if goes_on[index]:
                action = {k: v[index] for k, v in answer['acts'].items()}
                action['reset'] = answer['reset'][index]
                self._group.send(position, action)

    def _send(self, actor: ClientInterface, rows: list[Row]) -> Future:
        positions = np.array([position for position, _ in rows])
        obs = stack([obs for _, obs in rows], self._obs_space)
        return self._call(actor, positions, obs)

    def _call(
        self, actor: ClientInterface, positions: np.ndarray, obs: Batch
    ) -> Future:
        """Sends rows [n, ...] of the environments at these positions."""
        origin = {
            'envid': self._envids[positions],
            'worker_id': self._worker_ids[positions],
            'serial': self._serials[positions],
        }
        self._serials[positions] += 1
        future = actor.call(self._method, origin, obs, rows=len(positions))
        if used := self._usage():  # while the actor works
            actor.call('usage', self._worker_ids[0], self._is_eval, used)
        return future


def answer_of(future: Future) -> dict[str, Any]:
    """Waits for an answer; raises RowsError if the actor refuses the rows."""
    try:
        return future.result()
    except RemoteError as error:
        if error.kind == RowsError.__name__:
            raise RowsError(error.reason) from error
        raise


def says_stop(future: Future) -> bool:
    return bool(answer_of(future)['stop'].any())


def zeros_of(spaces: Spaces) -> dict[str, Any]:
    """An action of zeros."""
    return {k: np.zeros(v.shape, v.dtype)[()] for k, v in spaces.items()}
