"""Environment workers: play a group of environments with actions of the actor."""

import contextlib
import functools
import os
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any

import elements
import numpy as np

from ....core.base import Env
from ....core.errors import ConfigError, RowsError
from ....envs.runtime.stacking import check_infos, stack
from ....processes.signals import StopSignals
from ....transport import ClientInterface, Future, RemoteError, TransportError
from .. import run_id
from ..compatibility import declare
from ..context import await_server, crosses_network, make_client
from ..engines.base import Engine, Here
from ..pickling import pack, unpack
from ..settings import FIRST_EVAL_ENV, ParallelSettings, WorkerPlan
from ..supervision.health import health
from ..supervision.supervisor import Supervisor
from .group import Group, Row, make_group

__all__ = ['EnvWorker', 'parallel_env', 'parallel_envs', 'run_worker', 'start_workers']

SESSION_BYTES = 16
LEAVE_SECONDS = 5.0  # to close environments when a signal asks us to leave
ENDLESS = -1  # episodes; counted down from here, it never becomes zero


def parallel_env(
    make_env: Callable[[int], Env] | bytes,
    envid: int,
    args: Mapping[str, Any],
    is_eval: bool = False,
) -> str:
    """Runs one environment until the actor says stop, or a signal, which is returned.

    Where args.envs_per_worker is given, the group of so many that starts at `envid`.
    Environments for evaluation can be named by their own number, or counted on from
    the args.envs for training.
    """
    settings = ParallelSettings.read(args)
    first, end = (0, settings.envs)
    if is_eval:
        first, end = (end, end + settings.eval_envs)
        if envid >= FIRST_EVAL_ENV:
            first, end = FIRST_EVAL_ENV, FIRST_EVAL_ENV + settings.eval_envs
    if not first <= envid < end:
        kind = 'evaluation' if is_eval else 'training'
        raise ConfigError(
            f'There is no {kind} environment {envid}: with run.envs={settings.envs} '
            f'and run.eval_envs={settings.eval_envs} their numbers are {first} to '
            f'{end - 1}.'
        )
    count = max(1, settings.envs_per_worker)
    shift = FIRST_EVAL_ENV - first if is_eval else 0
    envids = tuple(shift + i for i in range(envid, min(envid + count, end)))
    return run_worker(make_env, WorkerPlan(envids, is_eval), args)


def parallel_envs(
    make_env_train: Callable[[int], Env] | bytes,
    make_env_eval: Callable[[int], Env] | bytes,
    args: Mapping[str, Any],
    engine: Engine | None = None,
) -> None:
    """Runs the workers of this machine, in processes, until they are told to stop.

    With args.replica, only the environments from that number on: others run elsewhere.
    With an engine, they run where it finds room.
    """
    settings, first = ParallelSettings.read(args), int(args.get('replica', 0))
    if first >= settings.envs:
        raise ConfigError(
            f'There is no environment {first}: with run.envs={settings.envs} their '
            f'numbers end at {settings.envs - 1}. Raise run.envs on this machine, so '
            f'that more of them join the run.'
        )
    engine = engine or Here()
    supervisor = Supervisor(settings, spawn=engine.spawn)
    with engine.join(settings, supervisor.end), supervisor:
        changes = engine.adapt(settings, settings.envs - first)
        changes['run_id'] = run_id.read(settings.logdir)  # Workers may not see it.
        args = elements.Config({**args, **changes})
        start_workers(supervisor, make_env_train, make_env_eval, args, first)
        supervisor.wait()


def start_workers(
    supervisor: Supervisor,
    make_env_train: Callable[[int], Env] | bytes,
    make_env_eval: Callable[[int], Env] | bytes,
    args: Mapping[str, Any],
    first: int = 0,
) -> None:
    """Starts one process for each worker that the settings plan."""
    train, evaluation = pack(make_env_train), pack(make_env_eval)
    for plan in ParallelSettings.read(args).plan_workers(first):
        make_env = evaluation if plan.is_eval else train
        supervisor.start(plan.name, run_worker, make_env, plan, args)


def run_worker(
    make_env: Callable[[int], Env] | bytes, plan: WorkerPlan, args: Mapping[str, Any]
) -> str:
    """Runs the environments of one worker until the actor says stop, or a signal, whose
    name is returned."""
    settings = ParallelSettings.read(args)
    make = unpack(make_env)
    makes = [functools.partial(make, index) for index in plan.indices]
    asked: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_leave_anyway, args=(asked,), daemon=True).start()
    signals = StopSignals(notify=functools.partial(_interrupt, asked))
    with (
        contextlib.suppress(_Interrupted),
        signals,
        contextlib.closing(make_group(makes, plan.envids)) as group,
        _make_actor_client(group, plan, settings) as actor,
    ):
        await_server(actor, 'actor', settings.actor_addr)
        far = crosses_network(settings.actor_addr, settings)
        EnvWorker(group, plan, settings, far).run(actor)
    return signals.received or ''


class EnvWorker:
    """Sends the observations of the environments that are ready, and hands out the
    actions that come back.

    It waits for the answer before the next message, in which the others are, too: few
    messages are cheaper than many. Not so if the actor is `far`: then environments that
    are ready a little later would wait for a whole way there and back.

    Repeats of a message after a lost connection are recognized by the actor: each row
    has a serial number within the session, which is new for every worker.
    """

    def __init__(
        self,
        group: Group,
        plan: WorkerPlan,
        settings: ParallelSettings,
        far: bool = False,
    ):
        check_infos(group.infos)
        self._group = group
        self._is_eval = plan.is_eval
        self._far = far and len(plan.envids) > 1
        self._method = 'act_eval' if plan.is_eval else 'act'
        self._limit = settings.rows_limit  # The actor takes no larger messages.
        self._eval_eps = settings.eval_eps
        self._obs_space = group.infos[0].obs_space
        count = len(plan.envids)
        self._envids = np.array(plan.envids, np.int32)
        session = np.frombuffer(os.urandom(SESSION_BYTES), np.uint8)
        self._sessions = np.tile(session, (count, 1))
        self._serials = np.zeros(count, np.int64)
        act_space = group.infos[0].act_space
        zeros = {k: np.zeros(v.shape, v.dtype)[()] for k, v in act_space.items()}
        self._first_action = {**zeros, 'reset': np.bool_(True)}

    def run(self, actor: ClientInterface) -> None:
        """Plays until the actor says stop."""
        try:
            if self._is_eval:
                self._evaluate(actor)
            else:
                self._play(actor, ENDLESS)
        finally:
            # Nobody waits for the answer: the actor may be gone as soon as it knows.
            actor.call('leave', self._sessions[0])

    def _evaluate(self, actor: ClientInterface) -> None:
        """Plays some episodes in each environment whenever an evaluation is due."""
        who, period = (self._sessions[0], int(self._envids[0])), -1
        while True:
            due = actor.call('evaluate', *who, period).result()
            if due['stop'] or not self._play(actor, self._eval_eps):
                return
            period = due['period']

    def _play(self, actor: ClientInterface, episodes: int) -> bool:
        """Plays so many episodes in each environment; False when told to stop."""
        left = np.full(len(self._envids), episodes)
        for position in range(len(left)):
            self._group.send(position, self._first_action)
        asked: list[Future] = []
        while left.any():
            rows = self._group.receive(self._limit)
            for position, obs in rows:
                left[position] -= bool(obs['is_last'])
            if rows:
                goes_on = [bool(left[position]) for position, _ in rows]
                asked.append(self._ask(actor, rows, goes_on))
            done = [future for future in asked if future.is_complete()]
            if any(_says_stop(future) for future in done):
                return False
            asked = [future for future in asked if future not in done]
        return not any(_says_stop(future) for future in asked)

    def _ask(
        self, actor: ClientInterface, rows: list[Row], goes_on: list[bool]
    ) -> Future:
        """The answer to these rows; its actions go to the environments that go on."""
        future = self._send(actor, rows)
        hand_out = functools.partial(self._hand_out, rows, goes_on)
        if self._far:
            future.add_done_callback(hand_out)
        else:
            _answer(future)
            hand_out(future)
        return future

    def _hand_out(self, rows: list[Row], goes_on: list[bool], future: Future) -> None:
        """Lets environments step; in any thread."""
        try:
            answer = future.result()
        except TransportError:
            self._group.wake()  # for `_play` to raise it
            return
        health().advance()
        if answer['stop'].any():
            self._group.wake()
            return
        for index, (position, _) in enumerate(rows):
            if goes_on[index]:
                action = {k: v[index] for k, v in answer['acts'].items()}
                action['reset'] = answer['reset'][index]
                self._group.send(position, action)

    def _send(self, actor: ClientInterface, rows: list[Row]) -> Future:
        positions = [position for position, _ in rows]
        obs = stack([obs for _, obs in rows], self._obs_space)
        origin = {
            'envid': self._envids[positions],
            'session': self._sessions[positions],
            'serial': self._serials[positions],
        }
        self._serials[positions] += 1
        return actor.call(self._method, origin, obs, rows=len(rows))


def _make_actor_client(
    group: Group, plan: WorkerPlan, settings: ParallelSettings
) -> ClientInterface:
    """A client that tells the actor what the environments look like."""
    check_infos(group.infos)
    declared = declare(group.infos[0].obs_space, group.infos[0].act_space)
    return make_client(settings.actor_addr, plan.name, settings, declared=declared)


def _answer(future: Future) -> dict[str, Any]:
    """What the actor says to rows; raises its refusal of them as our own error."""
    try:
        return future.result()
    except RemoteError as error:
        if error.kind == RowsError.__name__:
            raise RowsError(error.reason) from error
        raise


def _says_stop(future: Future) -> bool:
    return bool(_answer(future)['stop'].any())


class _Interrupted(BaseException):
    """A signal asked the worker to leave."""


def _interrupt(asked: 'queue.SimpleQueue[str]', name: str) -> None:
    asked.put(name)
    raise _Interrupted(name)


def _leave_anyway(asked: 'queue.SimpleQueue[str]') -> None:
    """Ends the process if the interruption came where it cannot be unwound, such as in
    the middle of making an environment: there is nothing to save."""
    asked.get()
    threading.Event().wait(LEAVE_SECONDS)
    os._exit(0)
