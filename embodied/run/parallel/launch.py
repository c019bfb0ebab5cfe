"""Launcher: starts all roles of a run and blocks until it has ended."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import elements

from ...logging.record_follower import RecordFollower
from ...processes import timeline
from ...processes.folder_lock import FolderLock
from ...transport import AddressInUse
from ..shared.log_callback import LogCallback, OnLog
from ..shared.outcome import Outcome
from ..shared.progress import announce_finished
from . import run_id
from .agent import AgentThread, parallel_agent
from .engines import ports
from .engines.base import Engine, Here
from .env import planned_members
from .env.worker import start_workers
from .logger.logger import parallel_logger
from .pickling import pack
from .replay.replay_server import parallel_replay
from .saves.manifest import ROLES, Manifest
from .settings import ParallelSettings
from .supervision.run_records import RunRecords
from .supervision.status import Status
from .supervision.supervisor import Supervisor
from .supervision.takeover import take_over

__all__ = ['combined']

Make: TypeAlias = Callable[..., Any] | bytes

TRIES = 5  # to find ports that no other process takes before our servers


def combined(
    make_agent: Make,
    make_replay_train: Make,
    make_replay_eval: Make,
    make_env_train: Make,
    make_env_eval: Make,
    make_stream: Make,
    make_logger: Make,
    args: Mapping[str, Any],
    engine: Engine | None = None,
    on_log: OnLog | None = None,
) -> Outcome:
    """Starts all roles and blocks until the run has ended: how it did.

    Roles that fail are restarted. Raises an error that a restart does not solve, or
    the error of an agent in this process. `make_*` are callables or cloudpickled bytes.
    engine: where the roles are started, by default on this machine.
    on_log: is called in a thread of this process with each line that the logger adds to
    metrics.jsonl, and may stop the run.
    """
    settings = ParallelSettings.read(args)
    engine = engine or Here()
    engine.check(settings)
    make_agent = pack(make_agent) if settings.agent_process else make_agent
    parts = Parts(
        make_agent,
        (pack(make_replay_train), pack(make_replay_eval), pack(make_stream)),
        (pack(make_env_train), pack(make_env_eval)),
        pack(make_logger),
    )
    with FolderLock(settings.logdir, nested=True) as lock:
        records = RunRecords(settings.logdir, lock.epoch)
        take_over(settings.logdir, records.event)
        with records.failing():
            _choose_saves(settings, records)
            finished = _announce_finished(settings)
        if finished:
            _correct_status(settings, records, finished)
            return finished
        args = {**args, 'run_id': run_id.create(settings.logdir)}
        with engine.open(settings):
            return planned_members.retry(
                settings,
                lambda settings, changes: _run(
                    parts, settings, {**args, **changes}, records, engine, on_log
                ),
                records.event,
            )


class Parts(NamedTuple):
    """What the roles are made of."""

    agent: Make
    replay: tuple[bytes, bytes, bytes]  # for training, for evaluation, the streams
    envs: tuple[bytes, bytes]  # for training, for evaluation
    logger: bytes


def _run(
    parts: Parts,
    settings: ParallelSettings,
    args: Mapping[str, Any],
    records: RunRecords,
    engine: Engine,
    on_log: OnLog | None,
) -> Outcome:
    for attempt in range(TRIES):
        planned = {'timeline_plan': timeline.plan(settings.logdir, settings.timeline)}
        adapted = engine.adapt(settings, settings.envs)
        args = elements.Config({**args, **adapted, **planned})
        try:
            with (
                Supervisor(settings, records, engine.spawn) as supervisor,
                _calling(on_log, settings, supervisor),
            ):
                _start_roles(supervisor, parts, settings, args)
                supervisor.wait()
            return supervisor.outcome
        except AddressInUse as error:
            # Another process took the port after it was chosen.
            last = attempt == TRIES - 1
            if last or not ports.is_replaceable(error.address, settings):
                raise
    raise AssertionError(TRIES)


@contextlib.contextmanager
def _calling(
    on_log: OnLog | None, settings: ParallelSettings, supervisor: Supervisor
) -> Iterator[None]:
    """Calls the function with what the logger, a process of its own, writes."""
    if on_log is None:
        yield
        return
    path = settings.logdir / 'metrics.jsonl'
    callback = LogCallback(on_log, supervisor.end)
    with callback, RecordFollower(path, callback):
        yield


def _choose_saves(settings: ParallelSettings, records: RunRecords) -> None:
    """Chooses the saves of the roles that belong together and are whole."""
    folder, note = settings.checkpoints, records.event
    roles = [x for x in ROLES if not (settings.remote_replay and x == 'replay')]
    Manifest.recover(folder, note).adopt(folder, note, roles)


def _start_roles(
    supervisor: Supervisor,
    parts: Parts,
    settings: ParallelSettings,
    args: elements.Config,
) -> None:
    """Each with its address, which it keeps when it is started again."""
    if settings.agent_process:
        supervisor.start('agent', parallel_agent, parts.agent, args, lead=True)
    else:
        print('The agent runs in a thread of the launcher, which cannot be restarted.')
        supervisor.add(AgentThread(parts.agent, args, supervisor.notify), lead=True)
    if not settings.remote_replay:
        supervisor.start('replay', parallel_replay, *parts.replay, args, writes=True)
    logger = parts.logger, args
    supervisor.start('logger', parallel_logger, *logger, writes=True, shown=True)
    if not settings.remote_envs:
        start_workers(supervisor, *parts.envs, settings.workers, args)


def _correct_status(
    settings: ParallelSettings, records: RunRecords, outcome: Outcome
) -> None:
    """Writes how the run has ended if its launcher was killed before it could."""
    if Status.exists(settings.logdir) and not Status.read(settings.logdir).over:
        records.status(**outcome._asdict(), roles={})


def _announce_finished(settings: ParallelSettings) -> Outcome | None:
    """Says so if the run in the folder has nothing left to do: how it ended."""
    if settings.replicas > 1:
        return None  # Replicas find out together.
    return announce_finished(settings.checkpoints / 'agent', 'learner', settings)
