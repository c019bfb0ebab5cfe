"""Offline data: the spaces and the replay of a run that trains without environments.

The recorded episodes are copied once into the run's own replay, so that nothing is ever
written to what was recorded and a run goes on without it.

replay/data.json  where the steps come from, what their spaces are, whether it is whole
"""

import contextlib
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import elements

from embodied import datasets
from embodied.core.base import Batch, Spaces
from embodied.core.checkpoint import load_part
from embodied.core.errors import CheckpointError, ConfigError
from embodied.core.files import write_whole
from embodied.processes.signals import StopSignals
from embodied.replay.recovery.folder import list_segments
from embodied.replay.tools.footprint import Footprint, row_bytes_of
from embodied.run.shared.outcome import Outcome

from . import factories
from .api.origin import Origin, describe_spaces, rebuild_spaces

__all__ = ['OfflineData', 'check', 'prepare', 'recorded_spaces']

RECORD = 'data.json'
FORMAT = 1
SPACES = ('obs_space', 'act_space')


class OfflineData(NamedTuple):
    """What a run trains on. steps: in its replay."""

    obs_space: Spaces
    act_space: Spaces
    steps: int


class Target(NamedTuple):
    """The spaces that data have to fit, and what they are of, in words."""

    obs_space: Spaces
    act_space: Spaces
    whose: str


class Plan(NamedTuple):
    """What is copied. fitting: to the spaces of the target and the latents."""

    sources: list[datasets.Source]
    target: Target
    latents: Spaces
    fitting: datasets.Fitting
    notes: list[str]


def check(config: elements.Config) -> None:
    """Refuses what cannot be trained on, before the folder of the run exists."""
    _check_options(config)
    if _record_of(config, _folder(config)) is None:
        _plan(config)


def prepare(config: elements.Config) -> OfflineData | Outcome:
    """Fills the replay of the run, unless an earlier start has; how the run ended if a
    signal came meanwhile."""
    _check_options(config)
    folder = _folder(config)
    record = _record_of(config, folder)
    if record and record['complete']:
        obs, act = (rebuild_spaces(record[key]) for key in SPACES)
        return OfflineData(obs, act, record['steps'])
    if record:
        shutil.rmtree(folder)  # an import that was interrupted
    return _import(config, folder)


def _check_options(config: elements.Config) -> None:
    if not all(config.data):
        raise ConfigError(
            'There is nothing to train on. Give --data with one or more of these: the '
            'folder of a run, a folder of npz files, the folder of a Minari dataset, '
            'or minari:ID.'
        )
    if config.random_agent:
        raise ConfigError('The random agent learns nothing: leave random_agent away.')
    if config.replay.load_from:
        raise ConfigError(
            'An offline run has no steps of its own to come after those of '
            f'replay.load_from: give {config.replay.load_from} as --data.'
        )


def _folder(config: elements.Config) -> Path:
    folder = factories.replay_folder(config, 'replay')
    assert folder is not None
    return folder


def _record_of(config: elements.Config, folder: Path) -> dict[str, Any] | None:
    """What an earlier start of this run has written; refuses a folder of another."""
    record = _read(folder)
    if record is None and folder.exists() and list_segments(folder):
        raise ConfigError(
            f'{folder} holds the replay of another run. Choose another --logdir; what '
            'is there can be trained on as --data.'
        )
    if record and config.replay.dir and record['logdir'] != config.logdir:
        raise ConfigError(
            f'{folder} holds the data of the run in {record["logdir"]}. Choose another '
            '--replay.dir, one for each offline run.'
        )
    return record


def _plan(config: elements.Config) -> Plan:
    sources = [datasets.open_source(name, config.trust) for name in config.data]
    target = _target(config, sources)
    latents = _latent_spaces(config)
    # Those of another agent than this one mean nothing to it.
    use_latents = bool(config.run.from_checkpoint)
    fitting = datasets.Fitting(*target[:2], latents, target.whose, use_latents)
    notes = [note for source in sources for note in fitting.check(source)]
    _check_length(config, sum(source.steps for source in sources))
    return Plan(sources, target, latents, fitting, notes)


def _check_length(config: elements.Config, steps: int) -> None:
    length = factories.sequence_length(config, 'train')
    if steps < length:
        raise ConfigError(
            f'The data hold {steps} steps, and a sequence has {length} (batch_length * '
            'consec_train + replay_context). Lower batch_length, or give more --data.'
        )


def _import(config: elements.Config, folder: Path) -> OfflineData | Outcome:
    sources, target, latents, fitting, notes = _plan(config)
    for note in notes:
        _say(config, note)
    steps = sum(source.steps for source in sources)
    count = sum(source.count for source in sources)
    _announce(
        config, folder, {**target.obs_space, **target.act_space, **latents}, steps
    )
    _say(config, f'copying {steps:,} steps of {count:,} episodes to {folder}')
    data = OfflineData(target.obs_space, target.act_space, steps)
    _write(config, folder, data, complete=False)
    with contextlib.ExitStack() as discard:
        # Half a copy is of no use, and the run may begin again with other data.
        discard.callback(shutil.rmtree, folder)
        filled, received = _copy(config, fitting.episodes(sources), steps)
        if not filled.complete:
            return Outcome.of(received)
        discard.pop_all()
    data = data._replace(steps=filled.steps)
    _write(config, folder, data, complete=True)
    return data


def _copy(
    config: elements.Config, episodes: Iterator[Batch], steps: int
) -> tuple[datasets.Filled, str]:
    """What went into the replay, and the name of the signal that has come, if any."""
    replay = factories.make_replay(config, 'replay', steps=steps)
    with StopSignals() as signals, contextlib.closing(replay):
        filled = datasets.fill(replay, episodes, steps, lambda: signals.received)
        return filled, signals.received or ''


def _target(config: elements.Config, sources: Sequence[datasets.Source]) -> Target:
    """Spaces of the task, else of the agent to begin with, else of the data."""
    if config.task:
        return Target(*factories.task_spaces(config, 'eval'), f'the task {config.task}')
    if config.run.from_checkpoint:
        path = config.run.from_checkpoint
        spaces = spaces_of_agent(path, config.trust)
        return Target(*spaces, f'the agent in {path}')
    first = sources[0]
    return Target(*recorded_spaces(first, config.trust), f'the data in {first.name}')


def recorded_spaces(source: datasets.Source, trust: bool) -> tuple[Spaces, Spaces]:
    """Spaces that data were recorded with: of the agent in the same run, if there is
    one, else as far as the data tell."""
    if isinstance(source, datasets.ReplayFiles):
        with contextlib.suppress(CheckpointError):  # a replay without its agent
            return spaces_of_agent(source.name, trust)
    return datasets.spaces_of(source)


def spaces_of_agent(path: str, trust: bool) -> tuple[Spaces, Spaces]:
    """Spaces of observations and actions of the agent in a run or checkpoint."""
    origin = Origin.of_checkpoint(load_part(path, 'agent', trust), path)
    return origin.obs_space, origin.act_space


def _latent_spaces(config: elements.Config) -> Spaces:
    import jax.numpy as jnp

    from .agent.networks.latents import latent_spaces

    return latent_spaces(config.agent.dyn, jnp.dtype(config.jax.compute_dtype))


def _announce(config: elements.Config, folder: Path, spaces: Any, steps: int) -> None:
    """Says what the copy takes if that is much of what is free."""
    footprint = Footprint.of(row_bytes_of(spaces), steps, None, folder)
    if not footprint.fits or footprint.is_large:
        _say(config, str(footprint))


def _say(config: elements.Config, line: str) -> None:
    if not config.quiet:
        print(f'dreamer: {line}', file=sys.stderr)


def _read(folder: Path) -> dict[str, Any] | None:
    try:
        return json.loads((folder / RECORD).read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ConfigError(
            f'{folder / RECORD} cannot be read: {error}. Delete {folder} to copy the '
            'data again.'
        ) from error


def _write(
    config: elements.Config, folder: Path, data: OfflineData, complete: bool
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    record = {
        'format': FORMAT,
        'data': list(config.data),
        'logdir': config.logdir,
        'steps': data.steps,
        'complete': complete,
        'obs_space': describe_spaces(data.obs_space),
        'act_space': describe_spaces(data.act_space),
    }
    write_whole(folder / RECORD, json.dumps(record, indent=2) + '\n')
