"""Curves: scores over frames, of runs of bench/scores.py and of a reference.

    STATE/runs/<preset>-<task>-<seed>/   scores.jsonl, metrics.jsonl, events.jsonl
    STATE/curves/<preset>-<task>-<seed>.csv   env_frames, score, length, time
    STATE/random.json                    scores of random play

A curve has a row per training episode, at the frame in which it ended. Its last row has
no score: it says how far the run came.
"""

import csv
import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import embodied
from dreamerv3 import config as config_lib
from embodied.core.random_agent import RandomAgent
from embodied.logging import read_records

RANDOM_EPISODES = 30
PASSING = 0.8  # ratio to the reference
END_OF_BIN = 0.75  # an episode that ends behind this share of a bin fills it
LAST_EPISODES = 10
LOOK: dict[str, Any] = {
    'statistic': 'mean',
    'band': 'range',
    'bins': None,  # those of the reference
    'x_label': 'Environment frames',
    'y_label': 'Episode return',
    'dpi': 130,
}


class Preset(NamedTuple):
    """How to train tasks of a suite, and what to compare them with."""

    configs: tuple[str, ...]
    frames: float  # default budget: that of the reference
    reference: str = ''  # suite in the reference
    prefix: str = ''  # of its names there
    repeat: int = 1  # frames per step
    subtract_random: bool = False


PRESETS = {
    'atari100k': Preset(('atari100k', 'size12m'), 4e5, 'atari100k', 'atari_', 4, True),
    'atari100k_all_actions': Preset(
        ('atari100k_all_actions', 'size12m'), 4e5, 'atari100k', 'atari_', 4, True
    ),
    'dmc': Preset(('dmc_proprio',), 5e5, 'dmc_proprio', 'dmc_'),
    'dmc_paper': Preset(('dmc_paper',), 5e5, 'dmc_proprio', 'dmc_', 2),
    'dmc_2023': Preset(('dmc_2023',), 5e5, 'dmc_proprio', 'dmc_'),
    'dmc_small_batch': Preset(('dmc_small_batch',), 5e5, 'dmc_proprio', 'dmc_', 2),
    'dmc_vision': Preset(('dmc_vision', 'size12m'), 1e6, 'dmc_vision', 'dmc_'),
    'crafter': Preset(('crafter', 'size12m'), 1e6),
    'toy': Preset(('tiny', 'demo'), 1e6),
    'gym': Preset(('tiny', 'cartpole'), 1e6),
}


class Run(NamedTuple):
    preset: str
    task: str
    seed: int

    @property
    def name(self) -> str:
        return f'{self.preset}-{self.task}-{self.seed}'


class Curve(NamedTuple):
    """Training episodes in the order of their ends."""

    frames: np.ndarray  # [N]
    scores: np.ndarray  # [N]
    reached: float  # frames, by the last of which no episode need have ended


class Bin(NamedTuple):
    edge: float  # frames at its right end
    mean: float
    low: float
    high: float


def split(task: str) -> tuple[str, str]:
    """Preset and name of a task given as `name` or `preset:name`."""
    preset, _, name = task.rpartition(':')
    preset = preset or name.partition('_')[0]
    if preset not in PRESETS:
        raise SystemExit(f'No preset for {task!r}, there are {", ".join(PRESETS)}.')
    return preset, name


def runs_in(state: Path) -> list[Run]:
    """The runs whose folders or curves are in the state."""
    names = {path.parent.name for path in (state / 'runs').glob('*/scores.jsonl')}
    names |= {path.stem for path in (state / 'curves').glob('*.csv')}
    runs = []
    for name in sorted(names):
        preset, _, rest = name.partition('-')
        task, _, seed = rest.rpartition('-')
        if preset in PRESETS and seed.isdecimal():
            runs.append(Run(preset, task, int(seed)))
    return runs


def export(run: Run, state: Path) -> None:
    """Writes the curve of a run, unless an earlier one reached further."""
    folder = state / 'runs' / run.name
    repeat = PRESETS[run.preset].repeat
    rows = [
        (repeat * e['step'], e['score'], e['length'], e['time'])
        for e in read_records(folder / 'scores.jsonl')
        if not e['eval']
    ]
    if not rows:
        return
    written = read_records(folder / 'metrics.jsonl')
    reached = max([rows[-1][0], *(repeat * r['step'] for r in written)])
    path = state / 'curves' / f'{run.name}.csv'
    if path.exists() and load_curve(path).reached > reached:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open('w', newline='') as file:
        writer = csv.writer(file)
        writer.writerow(('env_frames', 'score', 'length', 'time'))
        writer.writerows([*rows, (reached, '', '', '')])


def load_curve(path: Path) -> Curve:
    with path.open(newline='') as file:
        rows = list(csv.DictReader(file))
    ended = [(float(r['env_frames']), float(r['score'])) for r in rows if r['score']]
    return Curve(*np.array(ended).T, float(rows[-1]['env_frames']))


def load_reference(path: Path, preset: str, task: str) -> list[Bin]:
    """Bins of a file with suite, task, env_frames, seeds, mean, min, max."""
    known = PRESETS[preset]
    key = (known.reference, known.prefix + task.partition('_')[2])
    with path.open(newline='') as file:
        return [
            Bin(*(float(row[k]) for k in ('env_frames', 'mean', 'min', 'max')))
            for row in csv.DictReader(file)
            if (row['suite'], row['task']) == key
        ]


def bin_means(curve: Curve, edges: Sequence[float]) -> list[float]:
    """Mean score of the episodes that ended in each bin (left, right] that the curve
    has reached, NaN where none did.

    A bin is reached if the run came to its end, or an episode ended near that: what is
    cut off in the middle lacks the better scores.
    """
    means: list[float] = []
    left = 0.0
    for right in edges:
        inside = (left < curve.frames) & (curve.frames <= right)
        near = left + END_OF_BIN * (right - left)
        if curve.reached < right and curve.frames[-1] < near:
            break
        means.append(float(curve.scores[inside].mean()) if inside.any() else math.nan)
        left = right
    return means


def compare(curves: Sequence[Curve], bins: Sequence[Bin], random: float) -> dict:
    """Figures over the bins that all curves have reached; {} if there is none.

    Bins in which no episode of any curve ended are left out on both sides.
    """
    means = [bin_means(curve, [b.edge for b in bins]) for curve in curves]
    reached = min(map(len, means), default=0)
    table = np.array([m[:reached] for m in means])
    there = np.flatnonzero(np.isfinite(table).any(0)) if reached else []
    if not len(there):
        return {}
    ours, last = np.nanmean(table[:, there], 0), bins[there[-1]]
    theirs = float(np.mean([bins[i].mean for i in there]))
    above = theirs - random  # If nothing, the reference has not learned anything yet.
    ratio = (float(ours.mean()) - random) / above if above > 0 else math.nan
    floor = last.low - (last.high - last.low)
    return {
        'bins': len(there),
        'of_bins': len(bins),
        'frames_compared': last.edge,
        'mean': round(float(ours.mean()), 2),
        'reference': round(theirs, 2),
        'ratio': round(ratio, 3) if math.isfinite(ratio) else None,
        'last': round(float(ours[-1]), 2),
        'last_reference': last.mean,
        'last_floor': round(floor, 2),
        'passes': bool(ratio >= PASSING and ours[-1] >= floor),
        'ours': [round(float(x), 2) for x in ours],
    }


def load_curves(preset: str, task: str, state: Path) -> list[Curve]:
    """One per seed."""
    paths = sorted((state / 'curves').glob(f'{preset}-{task}-*.csv'))
    return [load_curve(path) for path in paths]


def summary(preset: str, task: str, state: Path, reference: Path | None) -> dict:
    curves = load_curves(preset, task, state)
    result: dict[str, Any] = {'task': task, 'preset': preset, 'seeds': len(curves)}
    if not curves:
        return result
    last = [curve.scores[-LAST_EPISODES:].mean() for curve in curves]
    result |= {
        'frames': [int(curve.reached) for curve in curves],
        'episodes': [len(curve.frames) for curve in curves],
        'last_episodes': [round(float(mean), 2) for mean in last],
        **speed(preset, task, state),
    }
    bins = load_reference(reference, preset, task) if reference else []
    if not bins:
        return result
    random = 0.0
    if PRESETS[preset].subtract_random:
        random = result['random'] = round(random_score(preset, task, state), 2)
    return result | compare(curves, bins, random)


def speed(preset: str, task: str, state: Path) -> dict[str, Any]:
    """Median rates over all runs of the task, and how long they ran."""
    rates: dict[str, list[float]] = {'fps/train': [], 'fps/env': []}
    seconds = []
    for folder in sorted((state / 'runs').glob(f'{preset}-{task}-*/')):
        records = read_records(folder / 'metrics.jsonl')
        for name, values in rates.items():
            values += [
                r[name] for r in records if math.isfinite(r.get(name) or math.nan)
            ]
        times = [r['run/seconds'] for r in records if r.get('run/seconds') is not None]
        seconds.append(round(max(times, default=0.0)))
    medians = {k: round(float(np.median(v)), 1) for k, v in rates.items() if v}
    return {**medians, 'seconds': seconds}


def random_score(preset: str, task: str, state: Path) -> float:
    """Mean score of random play in the same environment, measured once."""
    path = state / 'random.json'
    known = json.loads(path.read_text()) if path.exists() else {}
    key = f'{preset}-{task}'
    if key not in known:
        known[key] = float(np.mean(list(play_randomly(preset, task))))
        path.write_text(json.dumps(known))
    return known[key]


def play_randomly(preset: str, task: str) -> Iterator[float]:
    options, _ = config_lib.resolve(['--configs', *PRESETS[preset].configs])
    settings = options.env[task.partition('_')[0]]
    env = embodied.envs.make(task, seed=0, **settings)
    spaces = {k: v for k, v in env.act_space.items() if k != 'reset'}
    agent = RandomAgent(env.obs_space, spaces, seed=0)
    for _ in range(RANDOM_EPISODES):
        total, reset, over = 0.0, True, False
        while not over:
            _, acts, _ = agent.policy((), {'is_first': np.zeros(1)})
            obs = env.step({'reset': reset, **{k: v[0] for k, v in acts.items()}})
            total, reset, over = total + obs['reward'], False, obs['is_last']
        yield float(total)
    env.close()


def cut_to_shortest(curves: Sequence[Curve]) -> list[Curve]:
    """Beyond the end of one the mean of the others would jump.

    Those without an episode by then are left out.
    """
    end = min((curve.reached for curve in curves), default=0.0)
    counts = [int(np.sum(curve.frames <= end)) for curve in curves]
    return [
        Curve(curve.frames[:count], curve.scores[:count], end)
        for curve, count in zip(curves, counts, strict=True)
        if count
    ]


def draw_curves(
    preset: str, task: str, state: Path, reference: Path | None, folder: Path
) -> None:
    """A figure of all seeds as far as the slowest came, with the reference."""
    # Machines that only train need neither this package nor a library for figures.
    from dreamerv3.dashboard.figures import experiments, figure
    from dreamerv3.dashboard.series.reference import Reference

    curves = cut_to_shortest(load_curves(preset, task, state))
    if not curves:
        return
    seeds = [experiments.Seed(None, {}, x.frames, x.scores) for x in curves]
    label = f'Dreamer Parallel ({len(seeds)} seed{"s" if len(seeds) > 1 else ""})'
    one = experiments.Experiment(task, label, seeds)
    bins = load_reference(reference, preset, task) if reference else []
    count = sum(b.edge < one.end for b in bins) + 1  # up to the one it ended in
    columns = [np.array(x) for x in zip(*bins[:count], strict=True)]
    suite = PRESETS[preset].reference
    known = [Reference(suite, task, *columns, seeds=0)] if columns else []
    path = folder / f'{preset}-{task.partition("_")[2]}.png'
    figure.draw(path, [one], known, figure.Look(**LOOK))
    print(f'Figure: {path}', file=sys.stderr)
