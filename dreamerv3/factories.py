"""Factories: build agent, replay, environments, streams and logger from a config.

They are bound with `functools.partial` and unpickled in other processes, so this
module imports nothing that loads JAX; only `make_agent` does, when it is called.
"""

import importlib
import sys
from pathlib import Path
from typing import Any

import elements
import numpy as np

import embodied
from embodied import envs
from embodied.core import base
from embodied.core.errors import ConfigError
from embodied.core.step_keys import without_log
from embodied.replay.sampling import selectors
from embodied.replay.storage.allocator import GIGABYTE
from embodied.replay.tools.footprint import Footprint, row_bytes_of

from . import accelerator, sinks, vector_envs
from . import replica_options as replicas

__all__ = [
    'eval_seed',
    'make_agent',
    'make_env',
    'make_logger',
    'make_replay',
    'make_stream',
    'replay_folder',
    'sequence_length',
    'task_spaces',
]

OFFLINE = 'offline'  # the script that trains on recorded data
EVAL_SHARE = 10  # the eval replay holds a tenth

# Streams of seeds, so that no two parts of a run draw the same numbers.
TRAIN_ENV, EVAL_ENV, TRAIN_REPLAY, EVAL_REPLAY, POLICY = range(5)


def make_agent(
    config: elements.Config, spaces: tuple[base.Spaces, base.Spaces] | None = None
) -> base.Agent:
    """The DreamerV3 agent for the spaces of the task, or those that are given."""
    replicas.connect_clocks(config)
    obs_space, act_space = spaces or task_spaces(config)
    if config.random_agent:
        _announce_replay(config, {**obs_space, **act_space}, {})
        return embodied.RandomAgent(obs_space, act_space, _seed(config, POLICY))
    if config.script in accelerator.TRAINING:
        accelerator.prepare(config)
    agent = importlib.import_module('dreamerv3.agent.dreamer').Agent(
        obs_space, act_space, config
    )
    _announce_replay(config, {**obs_space, **act_space}, agent.model.latent_spaces)
    if config.run.device_steps > 1 and config.script in accelerator.TRAINING:
        vector_envs.check_script(config)
        members = vector_envs.on_device(config, make_env(config, 0))
        seeds = [_train_seed(config, index) for index in range(members.num)]
        agent.play_on_device(members, config.run.device_steps, seeds)
    return agent


def task_spaces(
    config: elements.Config, mode: base.Mode = 'train'
) -> tuple[base.Spaces, base.Spaces]:
    """What an agent observes in the task and can do there."""
    if not config.random_agent:
        _set_up_jax(config)
    env = make_env(config, 0, mode, num=1)
    obs_space = without_log(env.obs_space)
    act_space = {k: v for k, v in env.act_space.items() if k != 'reset'}
    env.close()
    return obs_space, act_space


def _set_up_jax(config: elements.Config) -> None:
    """Before an environment that is written in JAX starts it with its defaults."""
    jax = importlib.import_module('embodied.jax')
    if config.replicas > 1:
        jax.connect(config.replica, config.replicas, config.jax.coordinator_address)
    elif vector_envs.members_per_worker(config):
        jax.setup(config.jax.platform, config.jax.cache)


def make_env(
    config: elements.Config,
    index: int,
    mode: base.Mode = 'train',
    num: int | None = None,
) -> Any:
    """Environment number `index`, with a seed that no other environment has.

    num: members of a vector environment, from this number on, if the task has one of
    any size; without it as many as the run's options say.
    """
    suite, _ = envs.registry.parse(config.task)
    settings = dict(config.env.get(suite, {}))
    seed_of = eval_seed if mode == 'eval' else _train_seed
    members = vector_envs.count(config, index, mode)
    if not members:
        return envs.make(config.task, seed=seed_of(config, index), **settings)
    num = num or members
    seeds = [seed_of(config, index + member) for member in range(num)]
    return envs.make(config.task, seed=seeds, num=num, **settings)


def _train_seed(config: elements.Config, index: int) -> int:
    return _seed(config, TRAIN_ENV, index)


def eval_seed(config: elements.Config, index: int) -> int:
    """Seed of evaluation environment number `index`."""
    return _seed(config, EVAL_ENV, index)


def make_replay(
    config: elements.Config,
    folder: str,
    mode: base.Mode = 'train',
    steps: int | None = None,
) -> embodied.replay.Replay:
    """Replay of the sequences that `make_stream` asks for in this mode.

    `folder` is its name within the run, or within replay.dir. steps: of recorded data
    that it holds, all of them and nothing else.
    """
    options, is_train = config.replay, mode == 'train'
    share = 1 if is_train else EVAL_SHARE
    length = sequence_length(config, mode)
    capacity = int(options.size) // share if steps is None else max(steps, length)
    return embodied.replay.Replay(
        length=length,
        capacity=capacity,
        directory=replay_folder(config, folder),
        name=folder,
        chunksize=options.chunksize,
        online=options.online and steps is None,
        selector=_make_selector(options, capacity),
        seed=_seed(config, TRAIN_REPLAY if is_train else EVAL_REPLAY),
        context=config.replay_context,
        max_gb=options.max_gb / share if steps is None else 0.0,
        latents=options.latents,
        sync_every=options.sync_every,
        sync=options.sync,
        load_from=options.load_from if is_train else None,
    )


def make_stream(
    config: elements.Config, replay: base.Replay, mode: base.Mode = 'train'
) -> base.Stream:
    """Batches of the replay for training, reports or evaluation."""
    length, consec = _chunks(config, mode)
    needed = sequence_length(config, mode)
    if replay.length < needed:
        raise ConfigError(
            f'Sequences for {mode} have {needed} steps (consec * length + '
            f'replay_context) but the replay keeps {replay.length}, for training. '
            'Lower report_length or consec_report, or raise batch_length.'
        )
    source = embodied.streams.Stateless(replay.sample, config.batch_size, mode)
    return embodied.streams.Consec(
        source,
        length=length,
        consec=consec,
        prefix=config.replay_context,
        strict=mode == 'train',
        contiguous=True,
    )


def make_logger(config: elements.Config) -> embodied.Logger:
    """Logger with the outputs of `logger.outputs`, at environment step 0."""
    return sinks.make_logger(config)


def _announce_replay(
    config: elements.Config, spaces: dict[str, Any], latents: dict[str, Any]
) -> None:
    """Prints what replay takes when it is full, before anything is stored, if that is
    much of what is free; a quiet run prints it only if it is too much."""
    if config.script not in accelerator.TRAINING or config.run.remote_replay:
        return
    if config.script == OFFLINE:
        return  # The size of its replay is that of the data.
    options = config.replay
    folder = replay_folder(config, 'replay')
    in_memory = folder is not None and options.latents == 'ram'
    footprint = Footprint.of(
        row_bytes_of(spaces if in_memory else {**spaces, **latents}),
        int(options.size),
        int(options.max_gb * GIGABYTE) or None,
        folder,
        row_bytes_of(latents) if in_memory else 0,
    )
    if not footprint.fits or (footprint.is_large and not config.quiet):
        print(f'dreamer: {footprint}', file=sys.stderr)


def replay_folder(config: elements.Config, folder: str) -> Path | None:
    """Where the replay is kept, None for memory.

    Loops in one process resume exactly from their checkpoint, which needs the replay
    of that moment, not that of the crash: they keep it with the checkpoint.
    """
    if config.replay.dir:
        return Path(config.replay.dir).expanduser() / folder
    if 'parallel' in config.script or config.script == OFFLINE:
        return Path(config.logdir) / folder
    return None


def _make_selector(options: elements.Config, capacity: int) -> selectors.Selector:
    """Mixture of the ways to draw sequences that have a share."""
    ages = np.arange(1, capacity + 1, dtype=np.float64)
    parts = {
        'uniform': selectors.Uniform,
        'priority': lambda: selectors.Prioritized(**options.prio),
        'recency': lambda: selectors.Recency(ages**-options.recexp),
    }
    shares = {name: share for name, share in options.fracs.items() if share}
    return selectors.Mixture({name: parts[name]() for name in shares}, shares)


def sequence_length(config: elements.Config, mode: base.Mode) -> int:
    """Steps of a sequence in the replay, context included."""
    length, consec = _chunks(config, mode)
    return consec * length + config.replay_context


def _chunks(config: elements.Config, mode: base.Mode) -> tuple[int, int]:
    """Steps per batch and consecutive batches per sampled sequence."""
    if mode == 'train':
        return config.batch_length, config.consec_train
    return config.report_length, config.consec_report


def _seed(config: elements.Config, *path: int) -> int:
    replica = replicas.number(config)  # which are to see different things
    path = (config.seed, *path, *([replica] if replica else []))
    return int(np.random.SeedSequence(path).generate_state(1)[0])
