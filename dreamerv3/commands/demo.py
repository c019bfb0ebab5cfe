"""The demo: an agent learns a small game from pixels while one watches.

The run is a distributed one, with agent, replay, logger and environments in processes
of their own; `--script train` does the same in one.

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
from typing import Any

import elements
import numpy as np
from rich.console import Console

from embodied import envs
from embodied.logging import JsonlOutput, Logger, read_records
from embodied.logging.logger import Entry
from embodied.logging.terminal import TerminalOutput
from embodied.logging.video import VideoOutput

from .. import config as config_lib
from .. import main as main_lib
from ..run_folder import RunFolder
from . import demo_pictures as pictures

__all__ = ['OPTIMUM', 'RANDOM', 'gap_closed', 'levels_of', 'main']

FOLDER = 'demo'
CURVE, PREDICTION = 'curve.png', 'prediction.png'
VIDEO = 'report/open_loop/'
RANDOM, OPTIMUM = 'random play', 'optimum'
FINAL_EPISODES = 100  # over which the final score is taken
PICTURED = (2, 16)  # sequences and frames in the prediction picture


def main(flags: Sequence[str], folder: str | os.PathLike = FOLDER) -> int:
    """Trains, shows the curve and leaves pictures. Flags change the demo's options."""
    stamp = datetime.datetime.now().strftime('%Y%m%dT%H%M%S')
    logdir = Path(folder).absolute() / stamp
    preset = ['--configs', 'tiny', 'demo', f'--logdir={logdir}']
    config, _ = config_lib.resolve([*preset, *flags])
    levels = levels_of(config)
    console = Console(highlight=False, soft_wrap=True)
    _introduce(console, config, levels)
    with RunFolder(config) as run:
        make_logger = functools.partial(_make_logger, config, levels)
        run.outcome = main_lib.launch(config, make_logger)
    episodes = read_records(logdir / 'scores.jsonl')
    _conclude(console, episodes, levels)
    _draw_curve(logdir / CURVE, episodes, levels)
    for path in (logdir / CURVE, logdir / PREDICTION):
        if path.exists():
            shutil.copy(path, folder)
            console.print(f'  {os.path.relpath(Path(folder) / path.name)}')
    return 0


def levels_of(config: elements.Config) -> dict[str, float]:
    """Exact mean scores of random and of perfect play."""
    env = envs.Catch(**config.env.toy)
    return {RANDOM: env.random_score, OPTIMUM: env.optimum}


def gap_closed(score: float, levels: Mapping[str, float]) -> float:
    """Share of the way from random play to the optimum."""
    return (score - levels[RANDOM]) / (levels[OPTIMUM] - levels[RANDOM])


class PredictionPicture:
    """Logger output that draws the newest open-loop video."""

    def __init__(self, path: Path):
        self._path = path

    def __call__(self, entries: Sequence[Entry]) -> None:
        for _, name, value in entries:
            if name.startswith(VIDEO) and not isinstance(value, str):
                pictures.draw_prediction(value, *PICTURED).save(self._path)


def _make_logger(config: elements.Config, levels: Mapping[str, float]) -> Logger:
    logdir, run = Path(config.logdir), config.run
    view = TerminalOutput(
        'score of the episodes so far', run.steps, run.duration, levels
    )
    scalars, videos = JsonlOutput(logdir), VideoOutput(logdir, config.logger.fps)
    prediction = PredictionPicture(logdir / PREDICTION)
    return Logger(elements.Counter(), [view, scalars, videos, prediction])


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


def _draw_curve(
    path: Path, episodes: list[dict[str, Any]], levels: Mapping[str, float]
) -> None:
    if episodes:
        steps = [episode['step'] for episode in episodes]
        scores = [episode['score'] for episode in episodes]
        title = 'Catch from pixels: mean score of the training episodes'
        pictures.draw_curve(steps, scores, levels, title).save(path)
