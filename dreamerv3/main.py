"""The `dreamer` command: chooses what to do, reports users' mistakes in one line."""

import contextlib
import difflib
import functools
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence

import elements

import embodied
from embodied.core.errors import ConfigError, DreamerError
from embodied.core.files import storage_errors
from embodied.core.outside import shown
from embodied.processes.signals import StopSignals
from embodied.run.parallel.engines import kubernetes
from embodied.run.parallel.settings import ParallelSettings
from embodied.run.shared.outcome import Outcome

from . import config as config_lib
from . import engines, factories, sinks
from .replica_options import check_replicas, replica_folder
from .run_folder import RunFolder, expand

__all__ = ['launch', 'loop_args', 'main', 'run']

HELP = """\
usage: dreamer COMMAND [--configs PRESET ...] [--OPTION VALUE ...]

  train        train an agent; the same command continues the run in its --logdir
  train_eval   train, and play evaluation episodes in between
  parallel     train with one process per role: agent, replay, logger, environments
  eval_only    play with a trained agent: --run.from_checkpoint FOLDER
  eval         play with a trained agent and print its scores: dreamer eval LOGDIR
  play         watch a trained agent play, in a window or as a video
  export       write a trained agent into a folder: dreamer export LOGDIR OUT
  import       start a run with the weights of such a folder, or of the reference
  tasks        list the tasks and what they need
  check-env    find what would break training: dreamer check-env my_module:make_env
  sweep        train several tasks with several seeds: --task a b --seeds 5
  config       print the options that a command line stands for
  replay       look at the stored experience of a run
  watch        look at runs in a browser, live
  plot         draw curves of runs into a file, with a table
  status       tell how the processes of a distributed run in a folder are doing
  demo         watch an agent learn a small game on this machine, in minutes

  parallel_agent, parallel_replay, parallel_logger, parallel_envs, parallel_env
               one role of a distributed run as a job of its own, in any order
  keys         make the keys that roles on several machines need
  manifests    write a distributed run for Kubernetes: dreamer manifests FOLDER

  dreamer train --configs tiny --task toy_catch --logdir ~/logdir/catch
  dreamer train --configs size12m --task gym_CartPole-v1 --run.envs 8
  dreamer parallel --configs atari size50m --task atari_pong --run.envs 16
  dreamer config --configs crafter size12m

--quiet prints errors only; NO_COLOR=1 leaves colors away. --trust lets a run go on in
a folder of others although that runs code from its checkpoints.
Presets are applied from left to right, then the options. An option's name may be a
pattern: --.*\\.units 64. All of them, with comments: dreamerv3/configs.yaml.
"""

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

# Roles that are jobs of their own; only the agent's job owns the folder of the run.
AGENT = 'parallel_agent'
ROLES = ('parallel_replay', 'parallel_logger', 'parallel_envs', 'parallel_env')

# Commands with options of their own: the module whose main(argv) runs them.
TOOLS = {
    'check-env': 'dreamerv3.commands.check_env',
    'eval': 'dreamerv3.commands.eval',
    'export': 'dreamerv3.commands.export',
    'import': 'dreamerv3.commands.importing',
    'keys': 'embodied.transport.keys',
    'manifests': 'dreamerv3.commands.manifests',
    'play': 'dreamerv3.commands.play',
    'plot': 'dreamerv3.dashboard.figures.plot',
    'replay': 'embodied.replay.tools.commands',
    'status': 'embodied.run.parallel.supervision.status',
    'sweep': 'dreamerv3.commands.sweep',
    'tasks': 'dreamerv3.commands.tasks',
    'watch': 'dreamerv3.dashboard.web.watch',
}

USER_ERROR = 2  # exit code
SIGNALED = 128  # and the number of the signal
INTERRUPTED = SIGNALED + signal.SIGINT


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command line and returns its exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    try:
        return _command(argv)
    except DreamerError as error:
        print(f'dreamer: {shown(error)}', file=sys.stderr)
        return USER_ERROR
    except KeyboardInterrupt:
        return INTERRUPTED


def run(config: elements.Config) -> None:
    """Starts or continues the run in `config.logdir` and returns when it has ended."""
    sinks.check(config)
    engines.check(config)
    if config.script in (AGENT, *ROLES):
        _check_role(config)
    check_replicas(config)
    logdir = expand(config.logdir, config.task)
    config = config.update(logdir=replica_folder(logdir, config))
    with storage_errors(config.logdir):
        if config.script in ROLES:
            with StopSignals():
                launch(config)
        elif config.engine == engines.SLURM:
            engines.submit(config, loop_args(config))
        else:
            with RunFolder(config) as folder:
                folder.outcome = launch(config)


def launch(
    config: elements.Config, make_logger: Callable[[], embodied.Logger] | None = None
) -> Outcome | None:
    """Calls the loop that `config.script` names with factories for this config: how the
    run ended, if the loop decides that."""
    bind = functools.partial
    make_agent = bind(factories.make_agent, config)
    make_replay = bind(factories.make_replay, config, 'replay')
    make_eval_replay = bind(factories.make_replay, config, 'eval_replay', mode='eval')
    make_env = bind(factories.make_env, config)
    make_eval_env = bind(factories.make_env, config, mode='eval')
    make_stream = bind(factories.make_stream, config)
    make_logger = make_logger or bind(factories.make_logger, config)
    args = loop_args(config)
    run, parallel = embodied.run, embodied.run.parallel
    replays, envs = (make_replay, make_eval_replay), (make_env, make_eval_env)
    match config.script:
        case 'train':
            return run.train(
                make_agent, make_replay, make_env, make_stream, make_logger, args
            )
        case 'train_eval':
            return run.train_eval(
                make_agent, *replays, *envs, make_stream, make_logger, args
            )
        case 'eval_only':
            run.eval_only(make_agent, make_eval_env, make_logger, args)
        case 'parallel':
            return parallel.combined(
                make_agent,
                *replays,
                *envs,
                make_stream,
                make_logger,
                args,
                engine=engines.make_engine(config),
            )
        case 'parallel_agent':
            return parallel.parallel_agent(make_agent, args)
        case 'parallel_replay':
            _exit_if_stopped(parallel.parallel_replay(*replays, make_stream, args))
        case 'parallel_logger':
            _exit_if_stopped(parallel.parallel_logger(make_logger, args))
        case 'parallel_envs':
            parallel.parallel_envs(*envs, args, engine=engines.make_engine(config))
        case 'parallel_env':
            replica = _replica(config, args)
            is_eval = replica >= config.run.envs
            make = make_eval_env if is_eval else make_env
            _exit_if_stopped(parallel.parallel_env(make, replica, args, is_eval))
        case other:
            raise AssertionError(other)
    return None


def _exit_if_stopped(name: str) -> None:
    """A signal ends this role but not the run: whoever started it can tell that it is
    still needed, by the exit code that such a signal has anyway."""
    if name:
        raise SystemExit(SIGNALED + signal.Signals[name])


def loop_args(config: elements.Config) -> elements.Config:
    """The `args` of the loops: the group `run` and what it shares with the agent."""
    return elements.Config(config.run, **{name: config[name] for name in SHARED})


def _replica(config: elements.Config, args: elements.Config) -> int:
    """Number of the first environment of a worker; an indexed job of Kubernetes numbers
    the workers instead."""
    if kubernetes.INDEX not in os.environ:
        return config.replica
    workers = ParallelSettings.read(args).workers
    return workers[int(os.environ[kubernetes.INDEX])].envids[0]


def _check_role(config: elements.Config) -> None:
    """Jobs of one run that are started apart must agree on where they meet."""
    if '{timestamp}' in config.logdir:
        raise ConfigError(
            f'{config.script} is one of several jobs, which share a folder: give them '
            'all the same --logdir.'
        )


def _command(argv: list[str]) -> int:
    name, *rest = argv or ['help']
    if name in TOOLS:  # have a help of their own
        return importlib.import_module(TOOLS[name]).main(rest)
    if name in ('help', '-h') or '--help' in argv:
        print(HELP, end='')
        return 0
    if name.startswith('--'):
        return _run_script(argv)
    commands: dict[str, Callable[[list[str]], int]] = {
        'config': _print_config,
        'demo': _run_demo,
    }
    for script in config_lib.CHOICES['script']:
        commands[script] = functools.partial(_run_script, script=script)
    if name not in commands:
        close = difflib.get_close_matches(name, commands)
        hint = f' Did you mean {", ".join(close)}?' if close else ''
        names = ', '.join(sorted([*commands, *TOOLS]))
        raise ConfigError(f"Unknown command '{name}'.{hint} There are: {names}.")
    return commands[name](rest)


def _run_script(flags: list[str], script: str | None = None) -> int:
    try:
        config = _resolve([*flags, f'--script={script}'] if script else flags)
    except KeyboardInterrupt:
        return 0  # Nothing has begun.
    try:
        with _silence() if config.quiet else contextlib.nullcontext():
            run(config)
    except DreamerError:
        if config.run.debug:
            traceback.print_exc()
        raise
    return 0


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """What this process prints to stdout goes nowhere; errors go to stderr."""
    with open(os.devnull, 'w') as nowhere, contextlib.redirect_stdout(nowhere):
        yield


def _print_config(flags: list[str]) -> int:
    print(config_lib.dump(_resolve(flags)), end='')
    return 0


def _resolve(flags: list[str]) -> elements.Config:
    config, warnings = config_lib.resolve(flags)
    for warning in warnings:
        print(f'dreamer: warning: {warning}', file=sys.stderr)
    return config


def _run_demo(flags: list[str]) -> int:
    from .commands import demo

    return demo.main(flags)
