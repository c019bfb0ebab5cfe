"""The demo: an agent learns a small game from pixels while one watches.

It ends by its score or, at the latest, by its updates, however fast the
machine is. The run is a distributed one, with agent, replay, logger and environments in
processes of their own; `--script train` does the same in one.

demo/<time>/        the run, with curve.png and prediction.png
demo/curve.png      scores over environment steps, of the newest run
demo/prediction.png the future as its model imagines it, below the truth
"""

import datetime
import functools
import os
import shutil
import signal
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
from embodied.run.shared.outcome import STEPS, Outcome

from .. import config as config_lib
from ..loops import launch
from ..run_folder import RunFolder
from ..sinks import RunView
from . import demo_pictures as pictures

__all__ = ['OPTIMUM', 'RANDOM', 'gap_closed', 'levels_of', 'main']

FOLDER = 'demo'
CURVE, PREDICTION = 'curve.png', 'prediction.png'
SCORES = 'scores.jsonl'
VIDEO = 'report/open_loop/'
RANDOM, OPTIMUM = 'random play', 'optimum'
FINAL_EPISODES = 100  # over which the final score is taken
ENOUGH = 0.95  # share of the way to the optimum at which the demo ends
SUFFICIENT = 0.8  # share of the way to the optimum that needs no advice
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
        end = EndAtScore(logdir, levels, os.getpid(), ENOUGH)
        make_logger = functools.partial(_make_logger, config, levels, end)
        run.outcome = launch(config, make_logger)
    episodes = read_records(logdir / SCORES)
    _conclude(console, config, episodes, levels, run.outcome)
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


class EndAtScore:
    """Logger output that ends the run, as Ctrl-C does, when its score is good enough.

    process: number of the launcher. share: of the way from random play to the optimum,
    over the last episodes.
    """

    def __init__(
        self, logdir: Path, levels: Mapping[str, float], process: int, share: float
    ):
        self._path = logdir / SCORES
        self._levels, self._process, self._share = dict(levels), process, share
        self._ended = False

    def __call__(self, entries: Sequence[Entry]) -> None:
        if self._ended:
            return
        scores = [x['score'] for x in read_records(self._path)[-FINAL_EPISODES:]]
        if len(scores) == FINAL_EPISODES and (
            gap_closed(float(np.mean(scores)), self._levels) >= self._share
        ):
            self._ended = True
            os.kill(self._process, signal.SIGINT)


def _make_logger(
    config: elements.Config, levels: Mapping[str, float], end: EndAtScore
) -> Logger:
    logdir, run = Path(config.logdir), config.run
    status = RunView(config.logdir)
    view = TerminalOutput(
        'score of the episodes so far',
        run.steps,
        run.duration,
        levels,
        restarts=status.count_restarts,
        doing=status.doing,
        hardware=status.hardware,
    )
    scalars, videos = JsonlOutput(logdir), VideoOutput(logdir, config.logger.fps)
    prediction = PredictionPicture(logdir / PREDICTION)
    return Logger(elements.Counter(), [view, scalars, videos, prediction, end])


def _introduce(
    console: Console, config: elements.Config, levels: Mapping[str, float]
) -> None:
    size, board = config.env.toy.size, config.env.toy.board
    updates = round(config.run.steps * config.run.train_ratio / _replayed(config))
    console.print(
        f'A world model learns to catch a falling ball on a board of {board} x {board} '
        f'cells, from {size} x {size} pixels.',
        f'Random play scores {levels[RANDOM]:.2f}, perfect play {levels[OPTIMUM]:.2f}.',
        f'It ends when {ENOUGH:.0%} of the way between them is reached, at the latest '
        f'after {config.run.steps:,.0f} steps and {updates:,} updates. Ctrl-C ends it '
        'early.',
        sep='\n',
    )


def _replayed(config: elements.Config) -> int:
    """Steps that one update trains on."""
    return config.batch_size * config.batch_length


def _conclude(
    console: Console,
    config: elements.Config,
    episodes: list[dict[str, Any]],
    levels: Mapping[str, float],
    outcome: Outcome | None,
) -> None:
    scores = [episode['score'] for episode in episodes][-FINAL_EPISODES:]
    if not scores:
        console.print('The run ended before the first episode did.')
        return
    final = float(np.mean(scores))
    share = gap_closed(final, levels)
    console.print(
        f'Score of the last {len(scores)} episodes: [bold green]{final:.2f}[/], '
        f'{share:.0%} of the way from random play to the optimum.'
    )
    if share < SUFFICIENT:
        console.print(_advice(config, outcome))


def _advice(config: elements.Config, outcome: Outcome | None) -> str:
    """What to do about a run that has not learned the game."""
    longer = f'dreamer parallel --configs tiny demo --logdir {config.logdir}'
    if outcome and outcome.reason == STEPS:
        reason = 'That is less than most runs reach with these options.'
        longer += f' --run.steps {2 * config.run.steps:.0f}'
    else:
        reason = 'The run was ended early.'
    return (
        f'{reason} To train it further: {longer}. To begin another one: dreamer demo '
        f'--seed {config.seed + 1}'
    )


def _draw_curve(
    path: Path, episodes: list[dict[str, Any]], levels: Mapping[str, float]
) -> None:
    if episodes:
        steps = [episode['step'] for episode in episodes]
        scores = [episode['score'] for episode in episodes]
        title = 'Catch from pixels: mean score of the training episodes'
        pictures.draw_curve(steps, scores, levels, title).save(path)
