"""The `dreamer` command: chooses what to do, reports users' mistakes in one line."""

import contextlib
import difflib
import functools
import importlib
import os
import platform
import select
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import elements

from embodied.core.errors import ConfigError, DreamerError
from embodied.core.files import storage_errors
from embodied.core.outside import shown
from embodied.processes.signals import StopSignals
from embodied.run.shared.log_callback import OnLog

from . import accelerator, engines, factories, sinks
from . import config as config_lib
from .commands import describe, help_texts
from .loops import CALLING, SIGNALED, launch, loop_args
from .replica_options import check_replicas, replica_folder
from .run_folder import RunFolder, expand

__all__ = ['launch', 'loop_args', 'main', 'run']

DESCRIBE, PRESETS = 'describe', 'configs'  # flags of `dreamer config`

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
    'replay': 'dreamerv3.commands.replay_tools',
    'status': 'embodied.run.parallel.supervision.status',
    'sweep': 'dreamerv3.commands.sweep',
    'tasks': 'dreamerv3.commands.tasks',
    'watch': 'dreamerv3.dashboard.web.watch',
}

DISTRIBUTION = 'dreamer-parallel'
USER_ERROR = 2  # exit code
INTERRUPTED = SIGNALED + signal.SIGINT
PIPE_CLOSED = SIGNALED + signal.SIGPIPE


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command line and returns its exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _command(argv)
        sys.stdout.flush()
        return code
    except DreamerError as error:
        print(f'dreamer: {shown(error)}', file=sys.stderr)
        return USER_ERROR
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        if not _reader_is_gone():
            raise
        # `dreamer tasks | head` has read enough; Python flushes once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED


def run(config: elements.Config, on_log: OnLog | None = None) -> None:
    """Starts or continues the run in `config.logdir` and returns when it has ended.

    on_log: called with each log, see `dreamerv3.train`.
    """
    if on_log is not None:
        _check_callback(config, on_log)
    sinks.check(config)
    engines.check(config)
    accelerator.check_early(config)
    if config.script in (AGENT, *ROLES):
        _check_role(config)
    check_replicas(config)
    logdir = expand(config.logdir, config.task or config.script)
    config = config.update(logdir=replica_folder(logdir, config))
    if config.script == factories.OFFLINE:
        importlib.import_module('dreamerv3.offline_data').check(config)
    elif any(config.data) and config.script in accelerator.TRAINING:
        raise ConfigError(
            f'The script {config.script} does not read --data: choose offline, or '
            'replay.load_from to begin with the steps of another run.'
        )
    with storage_errors(config.logdir):
        if config.script in ROLES:
            with StopSignals():
                launch(config)
        elif config.engine == engines.SLURM:
            engines.submit(config, loop_args(config))
        else:
            with RunFolder(config) as folder:
                folder.outcome = launch(config, on_log=on_log)


def _check_callback(config: elements.Config, on_log: Any) -> None:
    """Raises if there is nothing to call, or no log reaches this process."""
    if not callable(on_log):
        raise ConfigError(
            f'on_log={on_log!r} is no function: on_log(step, metrics) is called.'
        )
    if config.script not in CALLING:
        raise ConfigError(
            f'on_log works with the scripts {", ".join(CALLING)}, not {config.script}.'
        )
    if config.engine == engines.SLURM:
        raise ConfigError(
            'on_log is called in the process that starts the run, and SLURM runs it '
            "elsewhere. Leave one of on_log and engine='slurm' away."
        )


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
    if name == 'help' and rest and rest[0] in TOOLS:
        return _command([rest[0], '--help'])
    if name == '--version':
        print(_version())
        return 0
    if name == 'help' or set(argv) & {'-h', '--help'}:
        topic = next((x for x in argv if x in help_texts.PAGES), None)
        print(help_texts.page(topic) if topic else help_texts.OVERVIEW, end='')
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
    own = config_lib.COMMAND_DEFAULTS.get(script or '')
    base = elements.Config(own) if own else None
    try:
        config = _resolve([*flags, f'--script={script}'] if script else flags, base)
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
    options = config_lib.parse_flags(flags)
    patterns = options.pop(DESCRIBE, None)
    if patterns is None:
        print(config_lib.dump(_resolve(flags)), end='')
        return 0
    rest = [f'--{k}={x}' for k, v in options.items() if k != PRESETS for x in v]
    if options.get(PRESETS):
        rest = [f'--{PRESETS}', *options[PRESETS], *rest]
    config = _resolve(rest)
    for pattern in patterns or ['.*']:
        print('\n'.join(describe.table(describe.describe(pattern, config))))
    return 0


def _resolve(flags: list[str], base: elements.Config | None = None) -> elements.Config:
    config, warnings = config_lib.resolve(flags, base)
    for warning in warnings:
        print(f'dreamer: warning: {warning}', file=sys.stderr)
    return config


def _version() -> str:
    """Name and version of this package, and of what it runs on."""
    versions = [f'{x} {metadata.version(x)}' for x in (DISTRIBUTION, 'jax')]
    where = Path(__file__).parent
    python = platform.python_version()
    return f'{", ".join(versions)}, Python {python}, {where}'


def _reader_is_gone() -> bool:
    """Whether stdout is a pipe that has no reader any more."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _run_demo(flags: list[str]) -> int:
    from .commands import demo

    return demo.main(flags)
