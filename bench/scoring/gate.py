"""Gate: whether the agent learns as the reference does with the same settings.

The file has the mean returns of rounds of episodes, one episode per environment, by
agent steps: system, task, seed, agent_steps, episodes, mean_return.
"""

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .arms import GATE, Run
from .curves import Curve

__all__ = ['GATE_RUNS', 'Row', 'judge', 'read_rounds', 'rounds']

GATE_RUNS = (
    *(Run(GATE, 'dmc_walker_walk', seed) for seed in range(3)),
    Run(GATE, 'dmc_cheetah_run', 0),
)


class Row(NamedTuple):
    """A round of a task: our mean over seeds and the range of the reference's seeds."""

    task: str
    agent_steps: int
    ours: float
    low: float
    high: float
    passes: bool


def rounds(curve: Curve, episodes: int) -> list[float]:
    """Mean return of each whole round of episodes, in the order of their ends."""
    count = len(curve.scores) // episodes
    return list(curve.scores[: count * episodes].reshape(count, episodes).mean(1))


def read_rounds(path: Path, system: str) -> dict[str, list[list[dict[str, float]]]]:
    """Rounds of each seed by task."""
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    with path.open(newline='') as file:
        for row in csv.DictReader(file):
            if row['system'] == system:
                keys = ('agent_steps', 'episodes', 'mean_return')
                values = {k: float(row[k]) for k in keys}
                found.setdefault((row['task'], row['seed']), []).append(values)
    tasks: dict[str, list[list[dict[str, float]]]] = {}
    for (task, _), seed in found.items():
        tasks.setdefault(task, []).append(seed)
    return tasks


def judge(curves: Mapping[str, Sequence[Curve]], path: Path) -> list[Row]:
    """A row for each round of the reference.

    Where the reference has several seeds, our mean must lie in their range in every
    round; where it has one, our mean must reach it in the last round. A round that not
    all of our seeds have reached does not pass, nor does one of which there is none.
    """
    rows: list[Row] = []
    for task, seeds in read_rounds(path, 'ref').items():
        rows += _judge_task(task, curves.get(f'dmc_{task}', ()), seeds)
    return rows


def _judge_task(
    task: str, ours: Sequence[Curve], seeds: Sequence[Sequence[Mapping[str, float]]]
) -> Iterable[Row]:
    episodes = int(seeds[0][0]['episodes'])
    means = [rounds(curve, episodes) for curve in ours]
    last = min(map(len, seeds)) - 1
    for index in range(last + 1):
        theirs = [seed[index]['mean_return'] for seed in seeds]
        reached = [x[index] for x in means if len(x) > index]
        mean = (
            float(np.mean(reached)) if len(reached) == max(1, len(means)) else math.nan
        )
        low, high = min(theirs), max(theirs)
        if len(seeds) > 1:
            passes = low <= mean <= high
        else:
            passes = mean >= low or (index < last and not math.isnan(mean))
        steps = int(seeds[0][index]['agent_steps'])
        yield Row(task, steps, round(mean, 1), low, high, passes)
