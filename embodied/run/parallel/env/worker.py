"""Environment workers: step a group of environments with actions of the actor."""

import contextlib
import functools
import os
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import elements
import numpy as np

from ....core.base import Env
from ....core.errors import ConfigError, RowsError
from ....core.renamed import renew
from ....envs.runtime.stacking import check_infos, stack
from ....processes.signals import StopSignals
from ....transport import ClientInterface, Future, RemoteError, TransportError
from .. import run_id
from ..compatibility import declare
from ..context import RoleContext
from ..engines.base import Engine, Here
from ..pickling import pack, unpack
from ..settings import FIRST_EVAL_ENV, ParallelSettings, WorkerPlan
from ..supervision.health import Health
from ..supervision.supervisor import Supervisor
from ..timeouts import WORKER_EXIT
from .group import Group, Row, make_group

__all__ = ['EnvWorker', 'parallel_env', 'parallel_envs', 'run_worker', 'start_workers']

WORKER_ID_BYTES = 16
ENDLESS = -1  # episodes; counted down from here, it never becomes zero


def parallel_env(
    make_env: Callable[[int], Env] | bytes,
    envid: int,
    args: Mapping[str, Any],
    is_eval: bool = False,
    health: Health | None = None,
) -> str:
    """Runs one environment until the actor stops it, or a signal: the signal's name.

    With args.envs_per_worker, runs the group of so many that starts at `envid`.
    Environments for evaluation have numbers from FIRST_EVAL_ENV on, or are counted on
    from the args.envs for training.
    """
    context = RoleContext.of(args, health)
    settings = context.settings
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
    return _run_worker(make_env, WorkerPlan(envids, is_eval), context)


def parallel_envs(
    make_env_train: Callable[[int], Env] | bytes,
    make_env_eval: Callable[[int], Env] | bytes,
    args: Mapping[str, Any],
    engine: Engine | None = None,
) -> None:
    """Runs the workers of this machine, in processes, until the actor stops them.

    With args.first_env, runs only the environments from that number on: the others run
    elsewhere. engine: where the processes are started.
    """
    args = _with_first_env(args)
    settings = ParallelSettings.read(args)
    first = settings.first_env
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
        plans = settings.plan_workers(first)
        start_workers(supervisor, make_env_train, make_env_eval, plans, args)
        supervisor.wait()


def _with_first_env(args: Mapping[str, Any]) -> dict[str, Any]:
    """The args with `first_env`, which older scripts call `replica`."""
    options = {
        'script': 'parallel_envs',
        'replica': args.get('replica', 0),
        'run.first_env': args.get('first_env', 0),
    }
    return {**args, 'first_env': renew(options)['run.first_env']}


def start_workers(
    supervisor: Supervisor,
    make_env_train: Callable[[int], Env] | bytes,
    make_env_eval: Callable[[int], Env] | bytes,
    plans: Sequence[WorkerPlan],
    args: Mapping[str, Any],
) -> None:
    """Starts one process for each of these workers."""
    train, evaluation = pack(make_env_train), pack(make_env_eval)
    for plan in plans:
        make_env = evaluation if plan.is_eval else train
        supervisor.start(plan.name, run_worker, make_env, plan, args)


def run_worker(
    make_env: Callable[[int], Env] | bytes,
    plan: WorkerPlan,
    args: Mapping[str, Any],
    health: Health | None = None,
) -> str:
    """Runs one worker until the actor stops it, or a signal: the signal's name."""
    return _run_worker(make_env, plan, RoleContext.of(args, health))


def _run_worker(
    make_env: Callable[[int], Env] | bytes, plan: WorkerPlan, context: RoleContext
) -> str:
    make = unpack(make_env)
    makes = [functools.partial(make, index) for index in plan.indices]
    names: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_exit_late, args=(names,), daemon=True).start()
    signals = StopSignals(notify=functools.partial(_interrupt, names))
    with (
        contextlib.suppress(_Interrupted),
        signals,
        contextlib.closing(make_group(makes, plan.envids, context.health)) as group,
        _make_actor_client(group, plan, context) as actor,
    ):
        addr = context.settings.actor_addr
        context.await_server(actor, 'actor', addr)
        far = context.crosses_network(addr)
        EnvWorker(group, plan, context, far).run(actor)
    return signals.received or ''


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
        act_space = group.infos[0].act_space
        zeros = {k: np.zeros(v.shape, v.dtype)[()] for k, v in act_space.items()}
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
            if any(_says_stop(future) for future in done):
                return False
            pending = [future for future in pending if future not in done]
        return not any(_says_stop(future) for future in pending)

    def _ask(
        self, actor: ClientInterface, rows: list[Row], goes_on: list[bool]
    ) -> Future:
        """Sends rows, and applies the answer to the environments that go on."""
        future = self._send(actor, rows)
        apply = functools.partial(self._apply, rows, goes_on)
        if self._far:
            future.add_done_callback(apply)
        else:
            _answer(future)
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
        positions = [position for position, _ in rows]
        obs = stack([obs for _, obs in rows], self._obs_space)
        origin = {
            'envid': self._envids[positions],
            'worker_id': self._worker_ids[positions],
            'serial': self._serials[positions],
        }
        self._serials[positions] += 1
        return actor.call(self._method, origin, obs, rows=len(rows))


def _make_actor_client(
    group: Group, plan: WorkerPlan, context: RoleContext
) -> ClientInterface:
    """A client that declares the spaces of the environments to the actor."""
    check_infos(group.infos)
    declared = declare(group.infos[0].obs_space, group.infos[0].act_space)
    return context.make_client(context.settings.actor_addr, plan.name, declared)


def _answer(future: Future) -> dict[str, Any]:
    """Waits for an answer; raises RowsError if the actor refuses the rows."""
    try:
        return future.result()
    except RemoteError as error:
        if error.kind == RowsError.__name__:
            raise RowsError(error.reason) from error
        raise


def _says_stop(future: Future) -> bool:
    return bool(_answer(future)['stop'].any())


class _Interrupted(BaseException):
    """A signal asks the worker to end."""


def _interrupt(signals: 'queue.SimpleQueue[str]', name: str) -> None:
    signals.put(name)
    raise _Interrupted(name)


def _exit_late(signals: 'queue.SimpleQueue[str]') -> None:
    """Ends the process some time after a signal, if the worker has not ended.

    An interruption cannot be unwound everywhere, for example while an environment is
    made, and there is nothing to save.
    """
    signals.get()
    threading.Event().wait(WORKER_EXIT)
    os._exit(0)
