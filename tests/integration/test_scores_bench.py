"""Figures of bench/scores.py, worked out by hand, and the state that it carries."""

import importlib
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

BENCH = Path(__file__).parents[2] / 'bench'
REFERENCE = """\
suite,task,env_frames,seeds,mean,min,max
atari100k,atari_pong,100,5,-20,-21,-19
atari100k,atari_pong,200,5,-10,-12,-8
atari100k,atari_pong,300,5,10,5,15
atari100k,atari_breakout,100,5,1,1,1
"""


@pytest.fixture
def scores(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module('scores')


@pytest.fixture
def curves(scores):
    return importlib.import_module('curves')


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
    metrics = {'step': 50, 'time': 9.0, 'fps/train': 8.0, 'run/seconds': 60.2}
    (folder / 'metrics.jsonl').write_text(json.dumps(metrics) + '\n')
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
    assert result['passes'] and result['frames'] == [200]
    assert result['fps/train'] == 8 and result['seconds'] == [60]


def test_curves_that_outlived_their_runs_are_found(curves, state):
    run = curves.Run('atari100k', 'atari100k_pong', 0)
    curves.export(run, state)
    shutil.rmtree(state / 'runs')
    (state / 'curves' / 'notes.csv').write_text('of somebody')
    assert curves.runs_in(state) == [run]


@pytest.mark.parametrize(
    'frames, reached, expected',
    [
        ([50, 90], 90, [1.5]),
        ([50, 100], 100, [1.5]),  # the right edge belongs to a bin
        ([50, 101], 110, [1.0]),  # and the left one to the bin before
        ([50], 90, []),  # what is cut off says little
        ([50], 100, [1.0]),  # but the last episode may be a long one
        ([150, 199], 199, [math.nan, 1.5]),
        ([50, 190], 190, [1.0, 2.0]),
    ],
)
def test_bins_count_when_they_were_reached(curves, frames, reached, expected):
    curve = curves.Curve(np.array(frames), np.arange(1.0, len(frames) + 1), reached)
    means = curves.bin_means(curve, [100, 200])
    np.testing.assert_array_equal(means, expected)


def make_bins(curves):
    return [curves.Bin(100, 2.0, 1.0, 3.0), curves.Bin(200, 4.0, 3.0, 5.0)]


def test_all_seeds_must_have_reached_a_bin(curves):
    bins = make_bins(curves)
    short = curves.Curve(np.array([95]), np.array([1.0]), 95)
    long = curves.Curve(np.array([95, 195]), np.array([2.0, 9.0]), 195)
    result = curves.compare([short, long], bins, random=0.0)
    assert result['bins'] == 1 and result['ratio'] == 0.75
    assert not result['passes']
    assert curves.compare([], bins, 0.0) == {}


def test_figures_end_with_the_shortest_curve(curves):
    short = curves.Curve(np.array([50]), np.array([1.0]), 95)
    long = curves.Curve(np.array([50, 95, 96]), np.array([2.0, 3.0, 9.0]), 195)
    short, long = curves.cut_to_shortest([short, long])
    assert short.frames.tolist() == [50] and short.reached == long.reached == 95
    assert long.frames.tolist() == [50, 95] and long.scores.tolist() == [2, 3]
    assert curves.cut_to_shortest([]) == []


def test_seeds_that_ended_no_episode_in_time_are_not_drawn(scores, tmp_path):
    folder = tmp_path / 'curves'
    folder.mkdir()
    head = 'env_frames,score,length,time\n'
    early, late = (folder / f'dmc_paper-dmc_walker_walk-{seed}.csv' for seed in (0, 1))
    early.write_text(head + '1000,1.0,9,1\n1200,,,\n')
    late.write_text(head + '16000,2.0,9,1\n32000,,,\n')
    flags = ['--minutes', '0', '--figures', str(tmp_path)]
    scores.main(['--state', str(tmp_path), *flags])
    figure = (tmp_path / 'dmc_paper-walker_walk.png').read_bytes()
    assert figure.startswith(b'\x89PNG')


def test_bins_without_episodes_are_left_out_on_both_sides(curves):
    late = curves.Curve(np.array([195]), np.array([3.0]), 195)
    result = curves.compare([late], make_bins(curves), random=0.0)
    assert result['bins'] == 1 and result['ratio'] == 3 / 4
    both = curves.Curve(np.array([95, 195]), np.array([1.0, 5.0]), 195)
    result = curves.compare([late, both], make_bins(curves), random=0.0)
    assert result['ours'] == [1, 4] and result['ratio'] == pytest.approx(
        5 / 6, abs=1e-3
    )


@pytest.mark.parametrize(
    'last, random, passes',
    [
        (1.0, 0.0, True),  # both means are 3; the floor is 3 - (5 - 3)
        (0.9, 0.0, False),
        (1.0, 3.0, False),  # a reference that random play reaches tells nothing
    ],
)
def test_the_last_bin_has_a_floor(curves, last, random, passes):
    curve = curves.Curve(np.array([95, 195]), np.array([6 - last, last]), 195)
    result = curves.compare([curve], make_bins(curves), random)
    assert result['last_floor'] == 1
    assert result['passes'] == passes


def test_a_state_is_summarized_and_drawn_by_one_command(
    scores, state, tmp_path, capsys
):
    (tmp_path / 'reference.csv').write_text(REFERENCE)
    flags = ['--state', str(state), '--minutes', '0', '--figures', str(tmp_path)]
    scores.main([*flags, '--reference', str(tmp_path / 'reference.csv')])
    assert json.loads(capsys.readouterr().out)['ours'] == [-19, -10]
    assert (tmp_path / 'atari100k-pong.png').read_bytes().startswith(b'\x89PNG')


def test_state_is_carried_without_replay(scores, state, tmp_path):
    run = scores.Run('atari100k', 'atari100k_pong', 0)
    scores.export(run, state)
    scores.pack([run], state, tmp_path / 'parts', 1e6)
    scores.unpack(tmp_path / 'parts', tmp_path / 'other')
    folder = tmp_path / 'other' / 'runs' / run.name
    assert (folder / 'ckpt' / 'agent.pkl').stat().st_size == 500
    assert not (folder / 'replay').exists()
    assert (tmp_path / 'other' / 'curves' / f'{run.name}.csv').exists()


def test_curves_travel_when_checkpoints_are_too_large(scores, curves, state, tmp_path):
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
    curve = curves.load_curve(tmp_path / 'other' / 'curves' / f'{run.name}.csv')
    assert curve.frames[-1] == 196 and curve.reached == 200
