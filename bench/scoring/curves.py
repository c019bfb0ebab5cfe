"""Curves: scores over environment frames, of our runs and of a reference.

    STATE/runs/<preset>[+<arm>]-<task>-<seed>/       scores.jsonl, metrics.jsonl
    STATE/curves/<preset>[+<arm>]-<task>-<seed>.csv  env_frames, score, length, time
    STATE/arms.json                                  options of each arm
    STATE/random.json                                scores of random play

A curve has a row per training episode, at the frame in which it ended. Its last row has
no score: it says how far the run came. Where only means of bins were kept, they have a
row at the end of each bin, without length and time.
"""

import csv
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import embodied
from dreamerv3 import config as config_lib
from embodied.core.random_agent import RandomAgent
from embodied.logging import read_records

from .arms import PRESETS, Run, named_run

RANDOM_EPISODES = 30
PASSING = 0.8  # ratio to the reference
END_OF_BIN = 0.75  # an episode that ends behind this share of a bin fills it
LAST_EPISODES = 10
PAUSE = 600.0  # seconds between two episodes, in which a run was not running
COLUMNS = ('env_frames', 'score', 'time')


class Curve(NamedTuple):
    """Training episodes in the order of their ends."""

    frames: np.ndarray  # [N]
    scores: np.ndarray  # [N]
    times: np.ndarray  # [N] seconds since 1970
    reached: float  # frames, by the last of which no episode need have ended

    @property
    def hours(self) -> float:
        """Hours of training, NaN if unknown; pauses longer than PAUSE do not count."""
        passed = np.diff(self.times)
        known = passed[passed <= PAUSE]
        return float(known.sum()) / 3600 if len(known) else math.nan

    def score(self, begin: float, end: float) -> float:
        """Mean score of the episodes that ended in (begin, end], NaN if none did."""
        inside = (begin < self.frames) & (self.frames <= end)
        return float(self.scores[inside].mean()) if inside.any() else math.nan


class Bin(NamedTuple):
    edge: float  # frames at its right end
    mean: float
    low: float
    high: float


def runs_in(state: Path) -> list[Run]:
    """The runs whose folders or curves are in the state."""
    names = {path.parent.name for path in (state / 'runs').glob('*/scores.jsonl')}
    names |= {path.stem for path in (state / 'curves').glob('*.csv')}
    return [run for name in sorted(names) if (run := named_run(name))]


def curve_path(run: Run, state: Path) -> Path:
    return state / 'curves' / f'{run.name}.csv'


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
    path = curve_path(run, state)
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
    ended = [[float(r[k] or 'nan') for k in COLUMNS] for r in rows if r['score']]
    frames, scores, times = np.array(ended).T
    return Curve(frames, scores, times, float(rows[-1]['env_frames']))


def load_reference(path: Path, preset: str, task: str) -> list[Bin]:
    """Bins of a file with suite, task, env_frames, seeds, mean, min, max.

    Their edges are environment frames as they really were.
    """
    known = PRESETS[preset]
    key = (known.reference, known.prefix + task.partition('_')[2])
    with path.open(newline='') as file:
        rows = [x for x in csv.DictReader(file) if (x['suite'], x['task']) == key]
    return [
        Bin(
            known.label * float(row['env_frames']),
            *(float(row[k]) for k in ('mean', 'min', 'max')),
        )
        for row in rows
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
    there = np.flatnonzero(np.isfinite(table).any(0)).tolist() if reached else []
    if not there:
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
        'ratio': _rounded(ratio, 3),
        'last': round(float(ours[-1]), 2),
        'last_reference': last.mean,
        'last_floor': round(floor, 2),
        'passes': bool(ratio >= PASSING and ours[-1] >= floor),
        'ours': [round(float(x), 2) for x in ours],
    }


def load_curves(group: Run, state: Path) -> list[Curve]:
    """Curves of all seeds of a group."""
    names = (state / 'curves').glob(f'{group.group}-*.csv')
    runs = (named_run(path.stem) for path in sorted(names))
    same = [run for run in runs if run and run.group == group.group]
    return [load_curve(curve_path(run, state)) for run in same]


def summary(group: Run, state: Path, reference: Path | None) -> dict[str, Any]:
    """Figures of all seeds of a group."""
    curves = load_curves(group, state)
    result: dict[str, Any] = {'task': group.task, 'preset': group.preset}
    result |= {'arm': group.arm, 'seeds': len(curves)}
    if not curves:
        return result
    last = [curve.scores[-LAST_EPISODES:].mean() for curve in curves]
    result |= {
        'frames': [int(curve.reached) for curve in curves],
        'episodes': [len(curve.frames) for curve in curves],
        'last_episodes': [round(float(mean), 2) for mean in last],
        'hours': [_rounded(curve.hours, 3) for curve in curves],
        **speed(group, state),
    }
    bins = load_reference(reference, group.preset, group.task) if reference else []
    if not bins:
        return result
    random = 0.0
    if PRESETS[group.preset].subtract_random:
        random = random_score(group.preset, group.task, state)
        result['random'] = round(random, 2)
    return result | compare(curves, bins, random)


def _rounded(x: float, digits: int) -> float | None:
    return round(x, digits) if math.isfinite(x) else None


def speed(group: Run, state: Path) -> dict[str, float]:
    """Median rates over all runs of the group."""
    rates: dict[str, list[float]] = {'fps/train': [], 'fps/env': []}
    for folder in sorted((state / 'runs').glob(f'{group.group}-*/')):
        records = read_records(folder / 'metrics.jsonl')
        for name, values in rates.items():
            values += [
                r[name] for r in records if math.isfinite(r.get(name) or math.nan)
            ]
    return {k: round(float(np.median(v)), 1) for k, v in rates.items() if v}


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
