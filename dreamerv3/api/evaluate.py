"""Evaluation of a trained agent from Python: `dreamerv3.evaluate`."""

import contextlib
import dataclasses
import functools
import inspect
import signal
from collections.abc import Callable, Sequence
from typing import Any

import elements
import numpy as np

import embodied
from embodied.core.base import Batch, Env
from embodied.core.errors import ConfigError
from embodied.envs import registry
from embodied.envs.adapters import own
from embodied.envs.adapters.infos import parse_names
from embodied.envs.spaces import describe, is_image
from embodied.logging import EpisodeStats
from embodied.processes.signals import StopSignals, Terminated

from .. import config as config_lib
from .. import factories
from ..vector_envs import CHOICE

__all__ = [
    'ENVS',
    'EPISODES',
    'Evaluation',
    'evaluate',
    'play',
    'refuse_other_spaces',
]

EPISODES = 20
ENVS = 4  # environments at the same time
FRAMES = 10_000  # of a film at most; longer episodes are cut
POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD


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
    make_env: Callable[..., Any] | None = None,
    episodes: int = EPISODES,
    greedy: bool = False,
    videos: int = 0,
    envs: int = ENVS,
    processes: bool = False,
    *,
    task: str | None = None,
) -> Evaluation:
    """Plays whole episodes; films the first `videos` of them.

    agent: of `dreamerv3.load`. make_env or task: as of `dreamerv3.train`; a function
    that needs one argument gets the number of the environment. Environments are adapted
    and wrapped with the options that the agent was trained with, unless `make_env`
    returns one of `embodied.envs.make` or `wrap`. processes: one per environment.
    """
    if (make_env is None) == (task is None):
        raise ConfigError('dreamerv3.evaluate needs either make_env=... or task=...')
    config = getattr(agent, 'config', None)
    make = functools.partial(_make, make_env, task, config)
    return play(agent, make, episodes, greedy, videos, envs, processes)


def play(
    agent: Any,
    make_env: Callable[[int], Env],
    episodes: int = EPISODES,
    greedy: bool = False,
    videos: int = 0,
    envs: int = ENVS,
    processes: bool = False,
) -> Evaluation:
    """The same with make_env(index), which returns environments ready for the agent.

    Each of the `envs` environments, or the members of a vector environment, plays its
    share, however long the others take: stopping at a total number would favor short
    episodes. A stop signal ends it between
    two steps, with closed environments and without a result.
    """
    if episodes < 1 or envs < 1:
        raise ConfigError(f'episodes={episodes} and envs={envs} must be at least 1.')
    count = min(envs, episodes)
    makers = [functools.partial(make_env, index) for index in range(count)]
    driver = embodied.Driver(makers, parallel=processes, fits=True)
    with StopSignals() as signals, contextlib.closing(driver):
        images = [k for k, x in driver.obs_space.items() if is_image(x)]
        if videos and not images:
            raise ConfigError(
                'There is nothing to film: no observation is an image. Evaluate '
                'without videos.'
            )
        refuse_other_spaces(agent, driver)
        games = _Games(driver.length, episodes, videos, images)
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


def refuse_other_spaces(agent: Any, env: Any) -> None:
    """Agents that know their spaces play no environment with other ones.

    env: an environment, or the driver of some.
    """
    pairs = (
        ('observation', getattr(agent, 'obs_space', {}), env.obs_space),
        ('action', getattr(agent, 'act_space', {}), env.act_space),
    )
    for what, known, given in pairs:
        for key, space in known.items():
            other = given.get(key)
            fits = other and (other.dtype, other.shape) == (space.dtype, space.shape)
            if not fits:
                raise ConfigError(
                    f'The agent was trained with the {what} {key!r}, '
                    f'{describe(space)}. '
                    f'The environment has {describe(other) if other else "none"}. '
                    f'Name a task with the spaces of its training.'
                )


def _make(
    make_env: Callable[..., Any] | None,
    task: str | None,
    config: elements.Config | None,
    index: int,
) -> Env:
    """Environment number `index`, as the agent of this config saw its own."""
    if task is not None:
        config = (config or config_lib.resolve([])[0]).update(task=task)
        return factories.make_env(config, index, mode='eval', num=1)
    seed = index if config is None else factories.eval_seed(config, index)
    options = _options(config)
    log = parse_names(options.pop('log', ''))
    env = own.adapt(_call(make_env, index, seed), seed, log)
    if registry.is_wrapped(env):
        return env
    return registry.wrap(registry.adjust(env, **options))


def _options(config: elements.Config | None) -> dict[str, Any]:
    """How environments were adjusted that came from a function or an id."""
    if config is None:
        return {}
    suite, _ = registry.parse(config.task)
    options = dict(config.env[suite]) if suite in ('own', 'gym') else {}
    options.pop(CHOICE, None)
    return options


def _call(make_env: Any, index: int, seed: int) -> Any:
    """make_env(seed=...), make_env() or make_env(index), whichever it takes."""
    parameters = inspect.signature(make_env).parameters
    if 'seed' in parameters:
        return make_env(seed=seed)
    needed = [x for x in parameters.values() if x.default is x.empty]
    positional = [x for x in needed if x.kind in (x.POSITIONAL_ONLY, POSITIONAL)]
    return make_env(index) if positional else make_env()


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
