"""Evaluation of a trained agent: `dreamer eval` and `dreamerv3.evaluate`."""

import argparse
import contextlib
import dataclasses
import functools
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import embodied
from embodied.core.base import Batch, Env
from embodied.core.errors import ConfigError
from embodied.core.outside import shown
from embodied.envs.spaces import is_image
from embodied.logging import EpisodeStats
from embodied.logging.jsonl import EvalFile
from embodied.processes.signals import StopSignals, Terminated

from .. import factories
from ..api import foreign

__all__ = ['Evaluation', 'evaluate', 'main']

EPISODES = 20
ENVS = 4  # environments at the same time
VIDEOS = 3
FRAMES = 10_000  # of a film at most; longer episodes are cut

DESCRIPTION = """\
Plays with a trained agent and prints its scores. FOLDER is a run, one of its
checkpoints or an exported bundle. Options of the run can be changed as for training,
for example: --seed 1 --jax.platform cpu. Code that a bundle or a run of others names
is not run without --trust."""


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Episodes by number: their scores, lengths and, of the first ones, films."""

    scores: np.ndarray
    lengths: np.ndarray
    films: list[Batch]  # {image key: [T, H, W, C]}

    def summary(self) -> dict[str, float]:
        scores = self.scores
        return {
            'episodes': len(scores),
            'mean': float(scores.mean()),
            'std': float(scores.std()),
            'min': float(scores.min()),
            'max': float(scores.max()),
            'length': float(self.lengths.mean()),
        }


def evaluate(
    agent: Any,
    make_env: Callable[[int], Env],
    episodes: int = EPISODES,
    greedy: bool = False,
    videos: int = 0,
    envs: int = ENVS,
    processes: bool = False,
) -> Evaluation:
    """Plays whole episodes; films the first `videos` of them.

    agent: of `dreamerv3.load`. make_env(index): an environment of the task. Each of
    the `envs` environments plays its share, however long the others take: stopping at
    a total number would favor short episodes. processes: one per environment. A stop
    signal ends it between two steps, with closed environments and without a result.
    """
    if episodes < 1 or envs < 1:
        raise ConfigError(f'episodes={episodes} and envs={envs} must be at least 1.')
    envs = min(envs, episodes)
    makers = [functools.partial(make_env, index) for index in range(envs)]
    driver = embodied.Driver(makers, parallel=processes)
    with StopSignals() as signals, contextlib.closing(driver):
        images = [k for k, x in driver.obs_space.items() if is_image(x)]
        if videos and not images:
            raise ConfigError(
                'There is nothing to film: no observation is an image. Evaluate '
                'without videos.'
            )
        games = _Games(envs, episodes, videos, images)
        driver.on_batch(games.take)
        driver.reset(agent.init_policy)
        policy = functools.partial(agent.policy, mode='eval' if greedy else 'train')
        while not games.over and not signals.received:
            driver(policy, steps=1)
    if signals.received == 'SIGINT':
        raise KeyboardInterrupt
    if signals.received:
        raise Terminated(signal.Signals[signals.received])
    return games.result()


class _Games:
    """Follows the episodes of all environments; number i is played by i modulo N."""

    def __init__(self, envs: int, episodes: int, videos: int, images: Sequence[str]):
        self._envs = envs
        self._episodes = episodes
        self._videos = videos
        self._images = images
        self._stats = EpisodeStats()
        self._current = list(range(envs))  # number of each one's episode
        self._results: dict[int, dict[str, float]] = {}
        self._films: dict[int, dict[str, list[np.ndarray]]] = {}

    @property
    def over(self) -> bool:
        return len(self._results) == self._episodes

    def take(self, trans: Batch, workers: np.ndarray) -> None:
        for row, worker in enumerate(workers.tolist()):
            number = self._current[worker]
            if number < self._videos:
                self._expose(number, {k: trans[k][row] for k in self._images})
            result = self._stats.add({k: v[row] for k, v in trans.items()}, worker)
            if result is not None:
                self._current[worker] += self._envs
                if number < self._episodes:
                    self._results[number] = result

    def result(self) -> Evaluation:
        results = [self._results[number] for number in range(self._episodes)]
        return Evaluation(
            np.array([x['score'] for x in results], np.float64),
            np.array([x['length'] for x in results], np.int64),
            [
                {key: np.stack(film) for key, film in self._films[number].items()}
                for number in sorted(self._films)
                if number < self._episodes
            ],
        )

    def _expose(self, number: int, images: Batch) -> None:
        film = self._films.setdefault(number, {key: [] for key in images})
        for key, image in images.items():
            if len(film[key]) < FRAMES:
                film[key].append(image.copy())


def main(argv: Sequence[str]) -> int:
    args, flags = foreign.parse(_parser(), argv)
    from ..api.loaded import load_player  # JAX

    agent = load_player(args.folder, flags, args.trust)
    config = agent.config
    make_env = functools.partial(factories.make_env, config, mode='eval')
    greedy = args.greedy or config.agent.eval_greedy
    result = evaluate(
        agent,
        make_env,
        args.episodes,
        greedy,
        args.video,
        args.envs,
        processes=config.run.env_processes and not config.run.debug,
    )
    summary = result.summary()
    how = 'greedy' if greedy else 'sampled'
    print(
        f'{args.episodes} episodes of {shown(config.task)} with the agent of step '
        f'{agent.step:,}, actions {how}',
        '  '.join(
            f'{name} {summary[name]:.4g}' for name in ('mean', 'std', 'min', 'max')
        ),
        sep='\n',
    )
    out = Path(args.out or args.folder).expanduser()
    with contextlib.closing(EvalFile(out)) as file:
        scores = result.scores.tolist()
        file.add(agent.step, {**summary, 'greedy': greedy, 'scores': scores})
    for path in _write_films(out, agent.step, result.films, config.logger):
        print(path)
    return 0


def _write_films(
    folder: Path, step: int, films: Sequence[Batch], options: Any
) -> list[Path]:
    from embodied.logging import pictures
    from embodied.logging.video import video_path

    paths = []
    for number, film in enumerate(films):
        for key, video in film.items():
            path = video_path(folder, f'eval_{number}/{key}', step, options.video)
            path.parent.mkdir(parents=True, exist_ok=True)
            pictures.write_video(path, pictures.frames(video), options.fps)
            paths.append(path)
    return paths


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser('dreamer eval', description=DESCRIPTION)
    add = parser.add_argument
    add('folder')
    add('--episodes', type=int, default=EPISODES, help=f'how many ({EPISODES})')
    add('--greedy', action='store_true', help='most likely actions, not samples')
    add('--envs', type=int, default=ENVS, help=f'at the same time ({ENVS})')
    add(
        '--video',
        type=int,
        nargs='?',
        const=VIDEOS,
        default=0,
        help=f'save videos of the first episodes, {VIDEOS} if no number is given',
    )
    add('--out', help='folder for scores and videos instead of FOLDER')
    return parser
