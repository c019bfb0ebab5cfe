"""Loops by option: calls what `script` names, with factories for a config."""

import functools
import os
import signal
from collections.abc import Callable
from typing import Any, NamedTuple

import elements

import embodied
from embodied.run import parallel
from embodied.run.parallel.engines import kubernetes
from embodied.run.parallel.settings import ParallelSettings
from embodied.run.shared.log_callback import OnLog
from embodied.run.shared.outcome import Outcome

from . import engines, factories, sinks, vector_envs

__all__ = ['CALLING', 'SIGNALED', 'launch', 'loop_args']

# Options outside of `run` that the loops read as well.
SHARED = (
    'logdir',
    'task',
    'batch_size',
    'batch_length',
    'report_length',
    'consec_train',
    'consec_report',
    'replay_context',
    'replica',
    'replicas',
    'trust',
)

CALLING = (
    'train',
    'train_eval',
    factories.OFFLINE,
    'parallel',
)  # scripts that take a log callback
SIGNALED = 128  # exit code of a signal, without its number


class Factories(NamedTuple):
    """What the loops call to make their parts, bound to one config."""

    agent: Callable[..., Any]
    replays: tuple[Callable[..., Any], Callable[..., Any]]  # for training, evaluation
    envs: tuple[Callable[..., Any], Callable[..., Any]]  # for training, evaluation
    stream: Callable[..., Any]
    logger: Callable[..., Any]

    @classmethod
    def of(cls, config: elements.Config) -> 'Factories':
        bind = lambda make, *args, **options: functools.partial(
            make, config, *args, **options
        )
        return cls(
            bind(factories.make_agent),
            (
                bind(factories.make_replay, 'replay'),
                bind(factories.make_replay, 'eval_replay', mode='eval'),
            ),
            (bind(factories.make_env), bind(factories.make_env, mode='eval')),
            bind(factories.make_stream),
            bind(factories.make_logger),
        )


def launch(
    config: elements.Config,
    make_logger: Callable[[], embodied.Logger] | None = None,
    on_log: OnLog | None = None,
) -> Outcome | None:
    """Calls the loop that `config.script` names; returns how the run ended, if the loop
    decides that. make_logger: instead of the logger that the options ask for. on_log:
    for the scripts of CALLING."""
    assert on_log is None or config.script in CALLING
    if config.script == 'parallel' and make_logger is None:
        with sinks.in_notebook(config) as logged:
            make_logger = functools.partial(factories.make_logger, logged)
            return launch(config, make_logger, on_log)
    make = Factories.of(config)
    if make_logger is not None:
        make = make._replace(logger=make_logger)
    args, run = loop_args(config), embodied.run
    # Agent, replays, environments, stream, logger.
    parts = make.agent, *make.replays, *make.envs, make.stream, make.logger
    match config.script:
        case 'train':
            single = make.agent, make.replays[0], make.envs[0], make.stream, make.logger
            return run.train(*single, args, on_log)
        case 'train_eval':
            return run.train_eval(*parts, args, on_log)
        case factories.OFFLINE:
            return _train_offline(config, make, args, on_log)
        case 'eval_only':
            run.eval_only(make.agent, make.envs[1], make.logger, args)
            return None
        case 'parallel':
            engine = engines.make_engine(config)
            return parallel.combined(*parts, args, engine, on_log)
        case 'parallel_agent':
            return parallel.parallel_agent(make.agent, args)
    _launch_role(config, make, args)
    return None


def _train_offline(
    config: elements.Config,
    make: Factories,
    args: elements.Config,
    on_log: OnLog | None,
) -> Outcome:
    """Trains on recorded data, with evaluations if there is a task."""
    from embodied.run.single.offline import OfflineSettings

    from . import offline_data

    OfflineSettings.read(args)  # Mistakes are refused before anything is copied.
    data = offline_data.prepare(config)
    if isinstance(data, Outcome):
        return data
    return embodied.run.offline(
        functools.partial(make.agent, (data.obs_space, data.act_space)),
        functools.partial(make.replays[0], steps=data.steps),
        make.envs[1] if config.task else None,
        make.stream,
        make.logger,
        args,
        on_log,
    )


def loop_args(config: elements.Config) -> elements.Config:
    """The `args` of the loops: the group `run` and what it shares with the agent."""
    members = vector_envs.members_per_worker(config)
    vector = {'envs_per_worker': members, 'vector_envs': True} if members else {}
    shared = {name: config[name] for name in SHARED}
    return elements.Config(config.run, **shared, **vector)


def _launch_role(
    config: elements.Config, make: Factories, args: elements.Config
) -> None:
    """Calls a role that is a job of its own, and does not decide how the run ends."""
    match config.script:
        case 'parallel_replay':
            ended = parallel.parallel_replay(*make.replays, make.stream, args)
        case 'parallel_logger':
            ended = parallel.parallel_logger(make.logger, args)
        case 'parallel_envs':
            parallel.parallel_envs(*make.envs, args, engine=engines.make_engine(config))
            return
        case 'parallel_env':
            envid = _first_env(config, args)
            is_eval = envid >= config.run.envs
            ended = parallel.parallel_env(make.envs[is_eval], envid, args, is_eval)
        case other:
            raise AssertionError(other)
    # The run goes on: the exit code of the signal shows the system that started this
    # job that it is needed again.
    if ended:
        raise SystemExit(SIGNALED + signal.Signals[ended])


def _first_env(config: elements.Config, args: elements.Config) -> int:
    """Number of the first environment of a worker; an indexed job of Kubernetes numbers
    the workers instead."""
    if kubernetes.INDEX not in os.environ:
        return config.run.first_env
    workers = ParallelSettings.read(args).workers
    return workers[int(os.environ[kubernetes.INDEX])].envids[0]
