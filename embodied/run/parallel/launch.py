"""Launcher: starts all roles of a run and blocks until it has ended."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import elements

from ...core.checkpoint import Checkpoint, load_part
from ...transport import AddressInUse
from ..progress import is_finished, say_finished
from . import addresses
from .agent import AgentThread, parallel_agent
from .crew import Crew
from .env import start_workers
from .factories import pack
from .logger import parallel_logger
from .manifest import Manifest
from .records import RunRecords
from .replay import parallel_replay
from .settings import ParallelSettings

__all__ = ['combined']

Make: TypeAlias = Callable[..., Any] | bytes

TRIES = 5  # to find ports that nobody takes before our servers do


def combined(
    make_agent: Make,
    make_replay_train: Make,
    make_replay_eval: Make,
    make_env_train: Make,
    make_env_eval: Make,
    make_stream: Make,
    make_logger: Make,
    args: Mapping[str, Any],
) -> None:
    """Starts all roles and blocks until the run has ended.

    Raises the first error of any role. `make_*` are callables or cloudpickled bytes.
    """
    settings = ParallelSettings.read(args)
    addresses.check(settings)
    if _announce_finished(settings):
        return
    Manifest.read(settings.checkpoints).adopt(settings.checkpoints)
    make_replay = pack(make_replay_train), pack(make_replay_eval)
    make_env = pack(make_env_train), pack(make_env_eval)
    make_stream, make_logger = pack(make_stream), pack(make_logger)
    for attempt in range(TRIES):
        args = elements.Config(args, **addresses.resolve(settings))
        try:
            with Crew(settings, RunRecords(settings.logdir, epoch=0)) as crew:
                _start_agent(crew, make_agent, settings, args)
                if not settings.remote_replay:
                    replay = (*make_replay, make_stream, args)
                    crew.start('replay', parallel_replay, *replay, writes=True)
                logger = make_logger, args
                crew.start('logger', parallel_logger, *logger, writes=True, shown=True)
                if not settings.remote_envs:
                    start_workers(crew, *make_env, args)
                crew.wait()
            return
        except AddressInUse as error:
            # Somebody was faster; elsewhere there may be room.
            if attempt == TRIES - 1 or not addresses.was_chosen(str(error), settings):
                raise


def _announce_finished(settings: ParallelSettings) -> bool:
    """Says so if the run in the folder has nothing left to do."""
    if not Checkpoint(settings.checkpoints / 'agent').exists():
        return False
    saved = load_part(settings.checkpoints / 'agent', 'learner')
    if not is_finished(saved, settings):
        return False
    figures = saved['steps'], saved['updates'], saved['seconds']
    say_finished(settings.logdir, *figures)
    return True


def _start_agent(
    crew: Crew, make_agent: Make, settings: ParallelSettings, args: elements.Config
) -> None:
    if settings.agent_process:
        crew.start('agent', parallel_agent, pack(make_agent), args, lead=True)
        return
    print('The agent runs in a thread of the launcher, which cannot be restarted.')
    crew.add(AgentThread(make_agent, args, crew.notify), lead=True)
