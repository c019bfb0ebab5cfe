"""The demo: an agent learns a small game from pixels while one watches.

demo/<time>/        the run, with curve.png and prediction.png
demo/curve.png      scores over environment steps, of the newest run
demo/prediction.png the future as its model imagines it, below the truth
"""

import datetime
import functools
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import elements
import numpy as np
from rich.console import Console

from embodied import envs
from embodied.core.base import Logger as LoggerContract
from embodied.logging import JsonlOutput, Logger, read_records
from embodied.logging.logger import Entry
from embodied.logging.terminal import TerminalOutput
from embodied.logging.video import VideoOutput

from . import config as config_lib
from . import main as main_lib
from . import pictures
from .folder import RunFolder

__all__ = ['OPTIMUM', 'RANDOM', 'gap_closed', 'levels_of', 'main']

FOLDER = 'demo'
RANDOM, OPTIMUM = 'random play', 'optimum'
FINAL_EPISODES = 100  # over which the final score is taken
PICTURED = (2, 16)  # sequences and frames in the prediction picture


def main(
    flags: Sequence[str],
    folder: str | os.PathLike = FOLDER,
    stream: IO[str] | None = None,
) -> int:
    """Trains, shows the curve and leaves pictures. Flags change the demo's options."""
    stamp = datetime.datetime.now().strftime('%Y%m%dT%H%M%S')
    logdir = Path(folder).absolute() / stamp
    preset = ['--configs', 'tiny', 'demo', f'--logdir={logdir}']
    config, _ = config_lib.resolve([*preset, *flags])
    levels = levels_of(config)
    console = Console(file=stream, highlight=False, soft_wrap=True)
    _introduce(console, config, levels)
    video = LastVideo()
    make_logger = functools.partial(_make_logger, config, levels, console, video)
    with RunFolder(config):
        main_lib.launch(config, make_logger)
    episodes = read_records(logdir / 'scores.jsonl')
    _conclude(console, episodes, levels)
    for path in _draw(logdir, episodes, levels, video.latest):
        shutil.copy(path, path.parent.parent)
        console.print(f'  {os.path.relpath(path.parent.parent / path.name)}')
    return 0


def levels_of(config: elements.Config) -> dict[str, float]:
    """Exact mean scores of random and of perfect play."""
    env = envs.Catch(**config.env.toy)
    return {RANDOM: env.random_score, OPTIMUM: env.optimum}


def gap_closed(score: float, levels: Mapping[str, float]) -> float:
    """Share of the way from random play to the optimum."""
    return (score - levels[RANDOM]) / (levels[OPTIMUM] - levels[RANDOM])


class LastVideo:
    """Logger output that remembers the newest video."""

    latest: np.ndarray | None = None

    def __call__(self, entries: Sequence[Entry]) -> None:
        for _, _, value in entries:
            if not isinstance(value, str) and value.ndim == 4:
                self.latest = value


def _make_logger(
    config: elements.Config, levels: Mapping[str, float], console: Console, video: Any
) -> LoggerContract:
    view = TerminalOutput(
        'score of the episodes so far',
        config.run.steps,
        config.run.duration,
        levels,
        console,
    )
    scalars = JsonlOutput(config.logdir)
    videos = VideoOutput(config.logdir, config.logger.fps)
    return Logger(elements.Counter(), [view, video, scalars, videos])


def _introduce(
    console: Console, config: elements.Config, levels: Mapping[str, float]
) -> None:
    size, board = config.env.toy.size, config.env.toy.board
    console.print(
        f'A world model learns to catch a falling ball on a board of {board} x {board} '
        f'cells, from {size} x {size} pixels, on this CPU.',
        f'Random play scores {levels[RANDOM]:.2f}, perfect play '
        f'{levels[OPTIMUM]:.2f}. Ctrl-C ends it early.',
        sep='\n',
    )


def _conclude(
    console: Console, episodes: list[dict[str, Any]], levels: Mapping[str, float]
) -> None:
    scores = [episode['score'] for episode in episodes][-FINAL_EPISODES:]
    if not scores:
        console.print('The run ended before the first episode did.')
        return
    final = float(np.mean(scores))
    console.print(
        f'Score of the last {len(scores)} episodes: [bold green]{final:.2f}[/], '
        f'{gap_closed(final, levels):.0%} of the way from random play to the optimum.'
    )


def _draw(
    logdir: Path,
    episodes: list[dict[str, Any]],
    levels: Mapping[str, float],
    video: np.ndarray | None,
) -> list[Path]:
    paths = []
    if episodes:
        steps = [episode['step'] for episode in episodes]
        scores = [episode['score'] for episode in episodes]
        title = 'Catch from pixels: mean score of the training episodes'
        image = pictures.draw_curve(steps, scores, levels, title)
        paths.append(logdir / 'curve.png')
        image.save(paths[-1])
    if video is not None:
        paths.append(logdir / 'prediction.png')
        pictures.draw_prediction(video, *PICTURED).save(paths[-1])
    return paths
