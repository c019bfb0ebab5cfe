"""Figures of bench/scores.py, worked out by hand, and the state that it carries."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

PATH = Path(__file__).parents[2] / 'bench' / 'scores.py'
REFERENCE = """\
suite,task,env_frames,seeds,mean,min,max
atari100k,atari_pong,100,5,-20,-21,-19
atari100k,atari_pong,200,5,-10,-12,-8
atari100k,atari_pong,300,5,10,5,15
atari100k,atari_breakout,100,5,1,1,1
"""


@pytest.fixture(scope='module')
def scores():
    spec = importlib.util.spec_from_file_location('scores_bench', PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def state(tmp_path):
    """A run with repeat 4: two episodes in the first bin, three in the second."""
    folder = tmp_path / 'state' / 'runs' / 'atari100k-atari100k_pong-0'
    folder.mkdir(parents=True)
    episodes = [(10, -20), (20, -18), (30, -12), (40, -10), (49, -8)]
    lines = [
        {'step': s, 'time': 1.0, 'env': 0, 'score': x, 'length': 9, 'eval': False}
        for s, x in episodes
    ]
    lines.append({**lines[-1], 'score': 99, 'eval': True})
    text = ''.join(json.dumps(line) + '\n' for line in lines)
    (folder / 'scores.jsonl').write_text(text)
    (folder / 'replay').mkdir()
    (folder / 'replay' / 'segment').write_bytes(b'x' * 1000)
    (folder / 'ckpt').mkdir()
    (folder / 'ckpt' / 'agent.pkl').write_bytes(b'y' * 500)
    (tmp_path / 'state' / 'random.json').write_text(
        json.dumps({'atari100k-atari100k_pong': -21.0})
    )
    return tmp_path / 'state'


def test_curves_are_compared_bin_by_bin_after_random_play(scores, state, tmp_path):
    reference = tmp_path / 'reference.csv'
    reference.write_text(REFERENCE)
    scores.export(scores.Run('atari100k', 'atari100k_pong', 0), state)
    result = scores.summary('atari100k', 'atari100k_pong', state, reference)
    # Frames 40 and 80 lie in the first bin, 120, 160 and 196 in the second.
    assert result['ours'] == [-19, -10]
    assert result['bins'] == 2 and result['of_bins'] == 3
    # Ours -14.5, theirs -15, random -21.
    assert result['ratio'] == pytest.approx((21 - 14.5) / (21 - 15), abs=1e-3)
    assert result['last_floor'] == -12 - 4
    assert result['passes'] and result['frames'] == [196]


@pytest.mark.parametrize(
    'frames, expected',
    [
        ([50, 90], [1.5]),
        ([50], []),  # the bin may be cut off
        ([150, 199], []),  # nothing in the first bin
        ([50, 190], [1.0, 2.0]),
    ],
)
def test_bins_count_when_they_were_reached(scores, frames, expected):
    curve = scores.Curve(np.array(frames), np.arange(1.0, len(frames) + 1))
    assert scores.bin_means(curve, [100, 200]) == expected


def test_all_seeds_must_have_reached_a_bin(scores):
    bins = [scores.Bin(100, 2.0, 1.0, 3.0), scores.Bin(200, 4.0, 3.0, 5.0)]
    short = scores.Curve(np.array([95]), np.array([1.0]))
    long = scores.Curve(np.array([95, 195]), np.array([2.0, 9.0]))
    result = scores.compare([short, long], bins, random=0.0)
    assert result['bins'] == 1 and result['ratio'] == 0.75
    assert not result['passes']
    assert scores.compare([], bins, 0.0) == {}


def test_state_is_carried_without_replay(scores, state, tmp_path):
    run = scores.Run('atari100k', 'atari100k_pong', 0)
    scores.export(run, state)
    scores.pack([run], state, tmp_path / 'parts', 1e6)
    scores.unpack(tmp_path / 'parts', tmp_path / 'other')
    folder = tmp_path / 'other' / 'runs' / run.name
    assert (folder / 'ckpt' / 'agent.pkl').stat().st_size == 500
    assert not (folder / 'replay').exists()
    assert (tmp_path / 'other' / 'curves' / f'{run.name}.csv').exists()


def test_curves_travel_when_checkpoints_are_too_large(scores, state, tmp_path):
    run = scores.Run('atari100k', 'atari100k_pong', 0)
    scores.export(run, state)
    (state / 'runs' / run.name / 'ckpt' / 'agent.pkl').write_bytes(b'y' * 10**6)
    scores.pack([run], state, tmp_path / 'parts', 1e5)
    scores.unpack(tmp_path / 'parts', tmp_path / 'other')
    assert not (tmp_path / 'other' / 'runs').exists()
    # A run that begins again does not shorten the curve.
    other = tmp_path / 'other' / 'runs' / run.name
    other.mkdir(parents=True)
    line = {'step': 5, 'time': 1, 'env': 0, 'score': 0, 'length': 5, 'eval': False}
    (other / 'scores.jsonl').write_text(json.dumps(line) + '\n')
    scores.export(run, tmp_path / 'other')
    curve = scores.load_curve(tmp_path / 'other' / 'curves' / f'{run.name}.csv')
    assert curve.frames[-1] == 196
