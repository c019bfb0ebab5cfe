"""Environment workers: step a group of environments with actions of the actor."""

import contextlib
import functools
import os
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import elements

from ....core.base import Env
from ....core.errors import ConfigError
from ....core.renamed import renew
from ....envs.runtime.stacking import check_infos
from ....processes.signals import StopSignals
from ....transport import ClientInterface
from .. import run_id
from ..compatibility import declare
from ..context import RoleContext
from ..engines.base import Engine, Here
from ..pickling import pack, unpack
from ..settings import FIRST_EVAL_ENV, ParallelSettings, WorkerPlan
from ..supervision.health import Health
from ..supervision.supervisor import Supervisor
from ..timeouts import WORKER_EXIT
from . import devices, planned_members
from .env_worker import EnvWorker
from .group import Group, make_group
from .vector_worker import VectorWorker

__all__ = ['EnvWorker', 'parallel_env', 'parallel_envs', 'run_worker', 'start_workers']


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
    plan = WorkerPlan(envids, is_eval)
    return _run_worker(make_env, plan, context, alone=True)


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

    def run(settings: ParallelSettings, changes: dict[str, Any]) -> None:
        supervisor = Supervisor(settings, spawn=engine.spawn)
        with engine.join(settings, supervisor.end), supervisor:
            adapted = engine.adapt(settings, settings.envs - first)
            adapted['run_id'] = run_id.read(settings.logdir)  # Workers may not see it.
            options = elements.Config({**args, **changes, **adapted})
            plans = settings.plan_workers(first)
            start_workers(supervisor, make_env_train, make_env_eval, plans, options)
            supervisor.wait()

    planned_members.retry(settings, run)


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
    return _run_worker(make_env, plan, RoleContext.of(args, health, name=plan.name))


def _run_worker(
    make_env: Callable[[int], Env] | bytes,
    plan: WorkerPlan,
    context: RoleContext,
    alone: bool = False,
) -> str:
    """alone: no launcher has planned it together with others."""
    settings = context.settings
    devices.assign(settings, plan)
    make = unpack(make_env)
    makes = [functools.partial(make, index) for index in plan.indices]
    names: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_exit_late, args=(names,), daemon=True).start()
    signals = StopSignals(notify=functools.partial(_interrupt, names))
    with (
        contextlib.suppress(_Interrupted),
        signals,
        contextlib.closing(
            make_group(
                makes,
                plan.envids,
                context.health,
                settings.vector_envs,
                context.timeline,
            )
        ) as group,
        _make_actor_client(group, plan, context) as actor,
    ):
        count = group.infos[0].members
        if alone and count and not settings.envs_per_worker:
            plan = planned_members.adopt(plan, count, settings)
        else:
            planned_members.check(plan, count, settings)
        context.await_server(actor, 'actor', settings.actor_addr)
        far = context.crosses_network(settings.actor_addr)
        kind = VectorWorker if count else EnvWorker
        kind(group, plan, context, far).run(actor)
    return signals.received or ''


def _make_actor_client(
    group: Group, plan: WorkerPlan, context: RoleContext
) -> ClientInterface:
    """A client that declares the spaces of the environments to the actor."""
    check_infos(group.infos)
    declared = declare(group.infos[0].obs_space, group.infos[0].act_space)
    return context.make_client(context.settings.actor_addr, plan.name, declared)


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
