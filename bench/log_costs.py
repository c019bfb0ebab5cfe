"""Log costs: what logging takes from the training loop and from a core.

    python bench/log_costs.py

One JSON line per figure, in processor time, so that other load on the machine does not
count. The logger role is a real process behind a real socket, fed as the actor feeds
it, at 5,000 environment steps per second.
"""

import functools
import io
import json
import multiprocessing
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import elements
import numpy as np
import psutil
from rich.console import Console

from dreamerv3 import config as config_lib
from dreamerv3 import main as command_line
from embodied.logging import JsonlOutput, Logger
from embodied.logging.terminal import TerminalOutput
from embodied.logging.video import VideoOutput
from embodied.run import parallel
from embodied.run.parallel.actor.episode_sender import EpisodeSender
from embodied.run.parallel.context import RoleContext
from embodied.run.parallel.engines import ports as addresses
from embodied.run.parallel.outbox import LOG_QUEUE, Outbox
from embodied.run.parallel.settings import ParallelSettings
from embodied.run.shared.filming import Filming
from embodied.run.shared.meters import Averages

STEPS_PER_SECOND = 5000
ENVS = 16
EPISODE = 100  # steps
SECONDS = 15.0  # of the measurement
WARMUP = 3.0  # seconds before it
METRICS = 30  # of each update; DreamerV3 on images has 24
FILM = (300, 64, 64, 3)
REPEATS = 2000
WRITES = 100
RATES = (50, 300)  # updates/s: size12m on an H200, and the goal for size1m
MOST_TRAINING = 0.01  # share of the training loop
MOST_LOGGER = 0.2  # of a core


def main() -> None:
    config = config_lib.resolve([])[0]
    print(json.dumps(measure_training(config.run.log_every)), flush=True)
    print(json.dumps(measure_role(config)), flush=True)


def measure_training(log_every: float) -> dict[str, Any]:
    """Share of a training loop that logs in its own process."""
    metrics = {f'loss/{i}': np.float32(i) for i in range(METRICS)}
    averages = Averages()
    per_update = _cost(lambda: averages.add(metrics), REPEATS)
    with tempfile.TemporaryDirectory() as folder:
        # As in a pipe; a live view is drawn by a thread of its own.
        view = TerminalOutput(console=Console(file=io.StringIO()))
        logger = Logger(elements.Counter(), [JsonlOutput(folder), view])
        line = averages.result()

        def write() -> None:
            logger.add(line, 'train')
            logger.write()

        per_write = _cost(write, WRITES)
        logger.close()
    shares = {
        f'share_at_{rate}_updates': round(rate * per_update + per_write / log_every, 5)
        for rate in RATES
    }
    return {
        'bench': 'log_costs/training',
        'us_per_update': round(1e6 * per_update, 1),
        'ms_per_line': round(1e3 * per_write, 2),
        **shares,
        'bar': MOST_TRAINING,
    }


def measure_role(config: elements.Config) -> dict[str, Any]:
    """Share of a core that the logger's process takes."""
    with tempfile.TemporaryDirectory() as folder:
        config = config.update({'logdir': folder, 'run.envs': ENVS})
        args = command_line.loop_args(config)
        args = elements.Config(args, **addresses.resolve(ParallelSettings.read(args)))
        context = RoleContext.of(args)
        process = multiprocessing.get_context('spawn').Process(
            target=parallel.parallel_logger,
            args=(functools.partial(_make_logger, folder), args),
            daemon=True,
        )
        process.start()
        assert process.pid is not None
        role = psutil.Process(process.pid)
        transitions, metrics = (_outbox(name, context) for name in ('tran', 'add'))
        sender = EpisodeSender('train', transitions, metrics, Filming(0, 1, 1), 1.0)
        _play(sender, WARMUP)
        begin = role.cpu_times()
        _play(sender, SECONDS)
        end = role.cpu_times()
        sender.close(0)
        client = context.make_client(args.logger_addr, 'bench')
        client.call('finish', 0).result()
        process.join()
        film = _film_cost(Path(folder))
    used = (end.user + end.system - begin.user - begin.system) / SECONDS
    films = film / config.run.film_every
    return {
        'bench': 'log_costs/role',
        'steps_per_second': STEPS_PER_SECOND,
        'share_of_a_core': round(used + films, 4),
        'of_that_for_films': round(films, 4),
        'dropped_messages': transitions.dropped + metrics.dropped,
        'bar': MOST_LOGGER,
    }


def _play(sender: EpisodeSender, seconds: float) -> None:
    """Steps of all environments, as evenly as the clock allows."""
    due, serials = time.monotonic(), np.zeros(ENVS, np.int64)
    never = threading.Event()
    for trans in _transitions(int(seconds * STEPS_PER_SECOND / ENVS)):
        serials[:] += 1
        sender.add(trans, np.arange(ENVS), serials, steps=1)
        sender.count(ENVS, 0, {'policy_ms': 1.0, 'batch_rows': ENVS}, steps=1)
        due += ENVS / STEPS_PER_SECOND
        never.wait(max(0.0, due - time.monotonic()))


def _transitions(count: int) -> Iterator[dict[str, np.ndarray]]:
    """Episodes that end at different times, with a value of their own to log."""
    offsets = np.arange(ENVS) * EPISODE // ENVS
    for step in range(count):
        phase = (step + offsets) % EPISODE
        yield {
            'is_first': phase == 0,
            'is_last': phase == EPISODE - 1,
            'reward': np.ones(ENVS, np.float32),
            'log/depth': phase.astype(np.float32),
        }


def _film_cost(folder: Path) -> float:
    film = np.random.default_rng(0).integers(0, 255, FILM, np.uint8)
    output = VideoOutput(folder)
    return _cost(lambda: output([(0, 'episode/film', film)]), 1)


def _make_logger(folder: str) -> Logger:
    view = TerminalOutput(console=Console(file=io.StringIO()))
    return Logger(elements.Counter(), [JsonlOutput(folder), view])


def _outbox(method: str, context: RoleContext) -> Outbox:
    client = context.make_client(context.settings.logger_addr, f'bench {method}')
    return Outbox(client, method, LOG_QUEUE)


def _cost(call: Any, repeats: int) -> float:
    """Processor seconds per call."""
    begin = time.process_time()
    for _ in range(repeats):
        call()
    return (time.process_time() - begin) / repeats


if __name__ == '__main__':
    main()
