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


def part(name):
    """A module of the bench, as a fixture."""

    @pytest.fixture(name=name)
    def module(scores):
        return importlib.import_module(f'scoring.{name}')

    return module


arms, carry, curves, gate = (part(x) for x in ('arms', 'carry', 'curves', 'gate'))
intervals, training = (part(x) for x in ('intervals', 'training'))


@pytest.fixture
def state(tmp_path):
    """A run with repeat 4: two episodes in the first bin, three in the second."""
    folder = tmp_path / 'state' / 'runs' / 'atari100k-atari100k_pong-0'
    folder.mkdir(parents=True)
    episodes = [(10, -20), (20, -18), (30, -12), (40, -10), (49, -8)]
    lines = [
        {'step': s, 'time': 10.0 * s, 'env': 0, 'score': x, 'length': 9, 'eval': False}
        for s, x in episodes
    ]
    lines.append({**lines[-1], 'score': 99, 'eval': True})
    text = ''.join(json.dumps(line) + '\n' for line in lines)
    (folder / 'scores.jsonl').write_text(text)
    metrics = {'step': 50, 'time': 9.0, 'fps/train': 8.0, 'run/seconds': 60.2}
    (folder / 'metrics.jsonl').write_text(json.dumps(metrics) + '\n')
    (folder / 'replay').mkdir()
    (folder / 'replay' / 'segment').write_bytes(b'x' * 1000)
    (folder / 'replay' / 'lock').touch()
    (folder / 'ckpt').mkdir()
    (folder / 'ckpt' / 'agent.pkl').write_bytes(b'y' * 500)
    (tmp_path / 'state' / 'random.json').write_text(
        json.dumps({'atari100k-atari100k_pong': -21.0})
    )
    return tmp_path / 'state'


def test_curves_are_compared_bin_by_bin_after_random_play(
    arms, curves, state, tmp_path
):
    reference = tmp_path / 'reference.csv'
    reference.write_text(REFERENCE)
    run = arms.Run('atari100k', 'atari100k_pong', 0)
    curves.export(run, state)
    result = curves.summary(run, state, reference)
    # Frames 40 and 80 lie in the first bin, 120, 160 and 196 in the second.
    assert result['ours'] == [-19, -10]
    assert result['bins'] == 2 and result['of_bins'] == 3
    # Ours -14.5, theirs -15, random -21.
    assert result['ratio'] == pytest.approx((21 - 14.5) / (21 - 15), abs=1e-3)
    assert result['last_floor'] == -12 - 4
    assert result['passes'] and result['frames'] == [200]
    assert result['fps/train'] == 8 and result['hours'] == [0.108]  # 390 s


def test_means_of_bins_have_no_length_and_no_time(curves, tmp_path):
    path = tmp_path / 'curve.csv'
    path.write_text('env_frames,score,length,time\n100,1.5,,\n200,2.5,,\n210,,,\n')
    curve = curves.load_curve(path)
    assert curve.scores.tolist() == [1.5, 2.5] and curve.reached == 210
    assert math.isnan(curve.hours)


def test_curves_that_outlived_their_runs_are_found(arms, curves, state):
    run = arms.Run('atari100k', 'atari100k_pong', 0)
    curves.export(run, state)
    shutil.rmtree(state / 'runs')
    (state / 'curves' / 'notes.csv').write_text('of a user')
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
    scores = np.arange(1.0, len(frames) + 1)
    curve = curves.Curve(np.array(frames), scores, scores, reached)
    means = curves.bin_means(curve, [100, 200])
    np.testing.assert_array_equal(means, expected)


def curve_of(curves, frames, scores, reached):
    frames, scores = np.array(frames), np.array(scores)
    return curves.Curve(frames, scores, np.zeros(len(frames)), reached)


def make_bins(curves):
    return [curves.Bin(100, 2.0, 1.0, 3.0), curves.Bin(200, 4.0, 3.0, 5.0)]


def test_all_seeds_must_have_reached_a_bin(curves):
    bins = make_bins(curves)
    short = curve_of(curves, [95], [1.0], 95)
    long = curve_of(curves, [95, 195], [2.0, 9.0], 195)
    result = curves.compare([short, long], bins, random=0.0)
    assert result['bins'] == 1 and result['ratio'] == 0.75
    assert not result['passes']
    assert curves.compare([], bins, 0.0) == {}


def test_seeds_of_different_lengths_are_drawn(scores, tmp_path):
    folder = tmp_path / 'curves'
    folder.mkdir()
    head = 'env_frames,score,length,time\n'
    early, late = (folder / f'dmc_paper-dmc_walker_walk-{seed}.csv' for seed in (0, 1))
    early.write_text(head + '1000,1.0,9,1\n1200,,,\n')
    late.write_text(head + '16000,2.0,9,1\n32000,,,\n')
    flags = ['--minutes', '0', '--figures', str(tmp_path)]
    scores.main(['--state', str(tmp_path), *flags])
    figure = (tmp_path / 'dmc_walker_walk.png').read_bytes()
    assert figure.startswith(b'\x89PNG')


def test_bins_without_episodes_are_left_out_on_both_sides(curves):
    late = curve_of(curves, [195], [3.0], 195)
    result = curves.compare([late], make_bins(curves), random=0.0)
    assert result['bins'] == 1 and result['ratio'] == 3 / 4
    both = curve_of(curves, [95, 195], [1.0, 5.0], 195)
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
    curve = curve_of(curves, [95, 195], [6 - last, last], 195)
    result = curves.compare([curve], make_bins(curves), random)
    assert result['last_floor'] == 1
    assert result['passes'] == passes


def test_a_state_is_summarized_and_drawn_by_one_command(
    scores, state, tmp_path, capsys
):
    (tmp_path / 'reference.csv').write_text(REFERENCE)
    flags = ['--state', str(state), '--minutes', '0', '--figures', str(tmp_path)]
    scores.main([*flags, '--reference', str(tmp_path / 'reference.csv')])
    result, *lines = capsys.readouterr().out.splitlines()
    assert json.loads(result)['ours'] == [-19, -10]
    # The last quarter, from frame 150, has the episodes at 160 and 196.
    cells = [x.strip() for x in lines[-1].split('|')[1:-1]]
    assert cells[2:6] == ['150 to 200', '-9.0', '', '-9.0']
    assert (tmp_path / 'atari100k_pong.png').read_bytes().startswith(b'\x89PNG')


def test_state_is_carried_with_its_replay(arms, carry, curves, state, tmp_path):
    run = arms.Run('atari100k', 'atari100k_pong', 0)
    curves.export(run, state)
    carry.pack([run], state, tmp_path / 'parts', 1e6)
    carry.unpack(tmp_path / 'parts', tmp_path / 'other')
    folder = tmp_path / 'other' / 'runs' / run.name
    assert (folder / 'ckpt' / 'agent.pkl').read_bytes() == b'y' * 500
    assert (folder / 'replay' / 'segment').read_bytes() == b'x' * 1000
    assert not (folder / 'replay' / 'lock').exists()
    assert (tmp_path / 'other' / 'curves' / f'{run.name}.csv').exists()


def test_a_replay_that_is_too_large_stays_behind(
    arms, carry, curves, state, tmp_path, capsys
):
    run = arms.Run('atari100k', 'atari100k_pong', 0)
    curves.export(run, state)
    segment = state / 'runs' / run.name / 'replay' / 'segment'
    segment.write_bytes(np.random.default_rng(0).bytes(10**6))
    carry.pack([run], state, tmp_path / 'parts', 1e5)
    assert f'Left behind: {run.name}/replay, 1.0 MB' in capsys.readouterr().out
    carry.unpack(tmp_path / 'parts', tmp_path / 'other')
    folder = tmp_path / 'other' / 'runs' / run.name
    assert (folder / 'ckpt').exists() and not (folder / 'replay').exists()


def test_curves_travel_when_checkpoints_are_too_large(
    arms, carry, curves, state, tmp_path
):
    run = arms.Run('atari100k', 'atari100k_pong', 0)
    curves.export(run, state)
    folder = state / 'runs' / run.name
    noise = np.random.default_rng(0).bytes(10**6)
    (folder / 'ckpt' / 'agent.pkl').write_bytes(noise)
    carry.pack([run], state, tmp_path / 'parts', 1e5)
    carry.unpack(tmp_path / 'parts', tmp_path / 'other')
    assert not (tmp_path / 'other' / 'runs').exists()
    # A run that begins again does not shorten the curve.
    other = tmp_path / 'other' / 'runs' / run.name
    other.mkdir(parents=True)
    line = {'step': 5, 'time': 1, 'env': 0, 'score': 0, 'length': 5, 'eval': False}
    (other / 'scores.jsonl').write_text(json.dumps(line) + '\n')
    curves.export(run, tmp_path / 'other')
    curve = curves.load_curve(tmp_path / 'other' / 'curves' / f'{run.name}.csv')
    assert curve.frames[-1] == 196 and curve.reached == 200


@pytest.mark.long
def test_a_run_goes_on_elsewhere_with_its_replay(scores, tmp_path):
    first, second, parts = (tmp_path / x for x in ('first', 'second', 'parts'))
    small = 'small: --run.envs 2 --agent.imag_length 3'
    train = lambda state, frames, *flags: scores.main(
        [
            *('gym_CartPole-v1', '--arm', small, '--minutes', '5'),
            *('--state', str(state), '--frames', str(frames), *flags),
        ]
    )
    train(first, 600, '--save-to', str(parts))
    train(second, 1200, '--load-from', str(parts))
    folder = second / 'runs' / 'gym+small-gym_CartPole-v1-0'
    lines = (folder / 'scores.jsonl').read_text().splitlines()
    steps = [json.loads(line)['step'] for line in lines]
    assert min(steps) < 600 < max(steps)
    segments = json.loads((folder / 'replay' / 'segments.json').read_text())
    assert sum(segments['segments'].values()) >= 1200


def test_frames_of_the_vector_curves_are_half_of_their_label(curves, tmp_path):
    reference = tmp_path / 'reference.csv'
    head = 'suite,task,env_frames,seeds,mean,min,max\n'
    rows = 'dmc_proprio,dmc_walker_walk,50000,5,154,1,2\n'
    rows += 'dmc_vision,dmc_walker_walk,50000,5,60,1,2\n'
    reference.write_text(head + rows)
    for preset, edge, mean in (('dmc_2023', 25000, 154), ('dmc_vision', 50000, 60)):
        (one,) = curves.load_reference(reference, preset, 'dmc_walker_walk')
        assert (one.edge, one.mean) == (edge, mean)


# Arms


def test_names_of_runs_tell_what_they_are(arms):
    runs = list(arms.runs_of(['dmc_2023:dmc_walker_walk'], ['', 'adam_2'], [0, 7]))
    assert [run.name for run in runs] == [
        'dmc_2023-dmc_walker_walk-0',
        'dmc_2023+adam_2-dmc_walker_walk-0',
        'dmc_2023-dmc_walker_walk-7',
        'dmc_2023+adam_2-dmc_walker_walk-7',
    ]
    assert [arms.named_run(run.name) for run in runs] == runs
    assert arms.named_run('notes') is arms.named_run('other-toy_catch-0') is None


def test_arms_add_options_to_their_preset(arms, training, tmp_path):
    texts = ['plain:', 'adam: --agent.opt.kind adam --agent.opt.agc 0']
    options = arms.parse_arms(texts)
    plan = training.Plan(
        *(tmp_path, options, 1.0, 5e4, 1, 'parallel', None, True, ['--run.envs', '2'])
    )
    run = arms.Run('dmc_paper', 'dmc_walker_walk', 3, 'adam')
    command = training.command(run, plan)
    assert command[-6:] == [*options['adam'], '--run.envs', '2']
    assert {'--seed=3', '--run.steps=25000.0', '--replay.latents=ram'} <= set(command)
    plain = training.command(run._replace(arm=''), plan)
    assert '--agent.opt.kind' not in plain
    assert f'--logdir={tmp_path / "runs" / "dmc_paper-dmc_walker_walk-3"}' in plain


@pytest.mark.parametrize('text', ['adam --lr 1', 'Adam: --lr 1', ': --lr 1'])
def test_arms_without_a_name_are_refused(arms, text):
    with pytest.raises(SystemExit, match='An arm is given as'):
        arms.parse_arms([text])


def test_an_arm_keeps_its_options(scores, tmp_path):
    scores.remember({'': [], 'adam': ['--agent.opt.kind', 'adam']}, tmp_path)
    scores.remember({'': []}, tmp_path)
    with pytest.raises(SystemExit, match="'adam'.*another name"):
        scores.remember({'adam': ['--agent.opt.lr', '1']}, tmp_path)


# Interquartile means


@pytest.mark.parametrize(
    ('values', 'mean'),
    [
        ([7], 7),
        ([0, 10, 20], 10),  # a quarter of three is no whole value
        ([100, 1, 0, 2], 1.5),
        ([8, 1, 7, 2, 6, 3, 5, 4], 4.5),
        ([[0, 10], [20, 30], [40, 90]], None),
    ],
)
def test_the_middle_half_is_averaged(intervals, values, mean):
    expected = [5, 25, 65] if mean is None else mean
    np.testing.assert_allclose(
        intervals.interquartile_mean(np.array(values, float)), expected
    )


def test_intervals_come_from_drawing_seeds_of_each_task(intervals):
    # Two seeds: their mean is 0 in 1 of 4 cases, 5 in 2, 10 in 1.
    assert intervals.bootstrap_interval([np.array([0, 10])]) == (0, 10)
    # Four values of two tasks: 0, 0 or 10, 10 from one, 100 and 100 from the other;
    # without the smallest and the largest, 50, 55 or 55 remain.
    two = [np.array([0, 10]), np.array([100, 100])]
    assert intervals.bootstrap_interval(two) == (50, 55)
    assert intervals.bootstrap_interval([np.array([3.0])]) is None
    same = [np.random.default_rng(0).normal(size=10)]
    low, high = intervals.bootstrap_interval(same)
    assert low < intervals.interquartile_mean(same[0]) < high
    assert (low, high) == intervals.bootstrap_interval(same)


# The gate


ROUNDS = """\
system,task,seed,agent_steps,episodes,mean_return
ref,walker_walk,0,100,2,10
ref,walker_walk,0,200,2,30
ref,walker_walk,1,100,2,20
ref,walker_walk,1,200,2,40
ours,walker_walk,0,100,2,1000
ref,cheetah_run,0,100,2,50
ref,cheetah_run,0,200,2,60
"""


@pytest.mark.parametrize(
    ('walker', 'cheetah', 'passes'),
    [
        ([[14, 16, 34, 36]], [0, 0, 60, 60], [True, True, True, True]),
        ([[14, 16, 34, 36]], [0, 0, 59, 60], [True, True, True, False]),
        ([[5, 5, 40, 40], [15, 15, 40, 40]], [9, 9, 70, 70], [True] * 4),
        (
            [[5, 5, 40, 40], [15, 14, 41, 41]],
            [9, 9, 70, 70],
            [False, False] + [True] * 2,
        ),
        ([[15, 15, 35]], [9, 9, 70, 70], [True, False, True, True]),  # an episode short
    ],
)
def test_the_gate_compares_rounds(curves, gate, tmp_path, walker, cheetah, passes):
    path = tmp_path / 'rounds.csv'
    path.write_text(ROUNDS)
    make = lambda scores: curve_of(curves, np.arange(len(scores)), scores, 9)
    ours = {'dmc_walker_walk': [make(x) for x in walker]}
    ours['dmc_cheetah_run'] = [make(cheetah)]
    rows = gate.judge(ours, path)
    assert [(row.task, row.agent_steps) for row in rows] == [
        *(('walker_walk', 100), ('walker_walk', 200)),
        *(('cheetah_run', 100), ('cheetah_run', 200)),
    ]
    assert [row.passes for row in rows] == passes
    assert (rows[0].low, rows[0].high) == (10, 20)


def test_the_gate_without_curves_fails(scores, tmp_path, capsys):
    assert scores.main(['--gate', '--minutes', '0', '--state', str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    rows = [json.loads(x) for x in lines if x.startswith('{"bench": "gate"')]
    assert {row['task'] for row in rows} == {'walker_walk', 'cheetah_run'}
    assert not any(row['passes'] for row in rows)


def test_the_gate_knows_the_figures_of_the_reference(scores, gate):
    rounds = gate.read_rounds(scores.SAME_SETTINGS, 'ref')
    last = [seed[-1]['mean_return'] for seed in rounds['walker_walk']]
    assert last == [168.9, 143.9, 73.4]
