"""Sinks: where the metrics and pictures of a run go, from `logger.outputs`."""

import contextlib
import functools
import importlib.util
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import elements

import embodied
from embodied.core.errors import ConfigError, MissingExtraError
from embodied.core.outside import shown
from embodied.logging import EventFile, JsonlOutput

__all__ = ['RunView', 'check', 'in_notebook', 'make_logger']

EXTRAS = {'tensorboard': 'tensorboardX', 'wandb': 'wandb'}  # package of each
LONGEST_TAG = 64  # characters, of Weights & Biases


def make_logger(config: elements.Config) -> embodied.Logger:
    """Logger with the outputs that the options ask for, at environment step 0.

    What is written to metrics.jsonl is what all else is made from, so it always is.
    """
    logger = embodied.logging.Logger(
        elements.Counter(),
        [JsonlOutput(config.logdir)],
        functools.partial(_note, config.logdir),
    )
    for name, make in MAKERS.items():
        if name in config.logger.outputs and not (name == 'terminal' and config.quiet):
            logger.attach(name, functools.partial(make, config))
    return logger


def in_notebook(
    config: elements.Config,
) -> contextlib.AbstractContextManager[elements.Config]:
    """Shows a distributed run below the cell, if this process is a notebook's kernel.

    Its logger is a process of its own, which does not know of the cell. Gives the
    options of that logger, which leaves the terminal to this process then.
    """
    shown = 'terminal' in config.logger.outputs and not config.quiet
    if not shown or 'ipykernel' not in sys.modules:
        return contextlib.nullcontext(config)
    from embodied.logging import notebook

    if not notebook.in_notebook():
        return contextlib.nullcontext(config)
    return _below_cell(config)


@contextlib.contextmanager
def _below_cell(config: elements.Config) -> Iterator[elements.Config]:
    from embodied.logging.record_follower import RecordFollower

    others = [name for name in config.logger.outputs if name != 'terminal']
    path = Path(config.logdir) / 'metrics.jsonl'
    with (
        contextlib.closing(_terminal(config)) as view,
        RecordFollower(path, view),
    ):
        yield config.update({'logger.outputs': others})


def check(config: elements.Config) -> None:
    """Raises, before anything is started, if an output cannot work: its package is
    not installed, or an option is impossible."""
    for name, package in EXTRAS.items():
        if name in config.logger.outputs and not importlib.util.find_spec(package):
            raise MissingExtraError(
                f"The log output {name} needs: pip install 'dreamer-parallel[{name}]'."
            )
    if 'wandb' in config.logger.outputs:
        _tags(config)
    if 'video' in config.logger.outputs:
        from embodied.logging import pictures

        pictures.check_format(config.logger.video)


def _terminal(config: elements.Config) -> Any:
    from embodied.logging.terminal import TerminalOutput

    run, view = config.run, RunView(config.logdir)
    steps = run.steps
    if config.script == 'offline':
        steps = run.updates or math.inf
    return TerminalOutput(
        f'{config.task or config.script}  {config.logdir}',
        steps,
        run.duration,
        ratio=run.train_ratio,
        restarts=view.count_restarts,
        doing=view.doing,
        hardware=view.hardware,
    )


def _video(config: elements.Config) -> Any:
    from embodied.logging.video import VideoOutput

    return VideoOutput(config.logdir, config.logger.fps, kind=config.logger.video)


def _csv(config: elements.Config) -> Any:
    from embodied.logging.csv_output import CsvOutput

    return CsvOutput(config.logdir)


def _tensorboard(config: elements.Config) -> Any:
    from embodied.logging.tensorboard_output import TensorBoardOutput

    return TensorBoardOutput(config.logdir, config.logger.fps, config.flat)


def _wandb(config: elements.Config) -> Any:
    from embodied.logging.wandb_output import WandbOutput

    return WandbOutput(
        config.logdir,
        config.logger.wandb.project,
        config.logger.wandb.mode,
        config.flat,
        config.logger.fps,
        entity=config.logger.wandb.entity,
        name=config.logger.wandb.name,
        group=config.logger.wandb.group,
        tags=_tags(config),
    )


def _tags(config: elements.Config) -> list[str]:
    """Tags for Weights & Biases, which refuses empty and long ones."""
    text = config.logger.wandb.tags
    tags = [tag.strip() for tag in text.split(',')] if text else []
    for tag in tags:
        if not 1 <= len(tag) <= LONGEST_TAG:
            raise ConfigError(
                f"logger.wandb.tags='{text}' has a tag of {len(tag)} characters, and "
                f'W&B takes 1 to {LONGEST_TAG}. Write tags with one comma between '
                'them, as baseline,v2.'
            )
    return tags


MAKERS: dict[str, Callable[[elements.Config], Any]] = {
    'terminal': _terminal,
    'video': _video,
    'csv': _csv,
    'tensorboard': _tensorboard,
    'wandb': _wandb,
}


class RunView:
    """What a view of a distributed run shows beside its metrics, from the status file
    of the launcher. A run in one process has none."""

    def __init__(self, logdir: str) -> None:
        self._logdir = Path(logdir)

    def count_restarts(self) -> int:
        """Restarts of roles since the launcher was started."""
        return sum(role['restarts'] for role in self._roles.values())

    def doing(self) -> str:
        """What takes roles long at the moment, '' if nothing does."""
        roles = self._roles.items()
        parts = [f'{name} {x["doing"]}' for name, x in roles if x.get('doing')]
        return shown(f'{", ".join(parts)}.') if parts else ''

    def hardware(self) -> str:
        """What the agent trains on, in words."""
        return shown(self._roles.get('agent', {}).get('hardware', ''))

    @property
    def _roles(self) -> dict[str, dict[str, Any]]:
        from embodied.run.parallel.supervision.status import Status

        if not Status.exists(self._logdir):
            return {}
        return Status.read(self._logdir).record['roles']


def _note(logdir: str, name: str, error: str) -> None:
    """Records an output that failed in events.jsonl."""
    try:
        with contextlib.closing(EventFile(logdir)) as events:
            events.add('output_failed', output=name, error=error)
    except OSError as broken:  # of a full disk, for instance
        print(f'Could not note that in events.jsonl: {broken}', file=sys.stderr)
