"""`dreamer plot`: curves, bands and tables, against values worked out by hand."""

import csv

import numpy as np
import pytest
from PIL import Image
from sample_runs import append, make_run

from dreamerv3.dashboard.figures import figure, plot
from dreamerv3.dashboard.figures.experiments import Experiment, find_experiments
from dreamerv3.dashboard.figures.final_score import DEFINITION, final_score
from dreamerv3.dashboard.figures.table import render
from dreamerv3.dashboard.runs.folders import find_runs
from dreamerv3.dashboard.series.reference import frames_per_step, read_reference
from embodied.core.errors import ConfigError

REFERENCE = (
    'suite,task,env_frames,seeds,mean,min,max\n'
    'toys,toy_catch,20,5,3,2,4\ntoys,toy_catch,10,5,1,0,2\nmore,other_task,1,2,1,1,1\n'
)


def make_scores(folder, values, **options):
    """A run whose episodes end at steps 1, 2, 3, ... with these scores."""
    make_run(folder, 0, **options)
    for step, value in enumerate(values, 1):
        record = {'step': step, 'time': 3600.0 * step, 'env': 0, 'length': 1}
        append(folder / 'scores.jsonl', record | {'score': value, 'eval': False})


@pytest.fixture
def folder(tmp_path):
    make_scores(tmp_path / 'logs' / 'a0', [1.0, 3.0, 5.0, 7.0], seed=0)
    make_scores(tmp_path / 'logs' / 'a1', [2.0, 4.0, 0.0, 2.0], seed=1)
    make_scores(tmp_path / 'logs' / 'a2', [9.0, 9.0], seed=2)
    make_scores(tmp_path / 'logs' / 'b0', [1.0] * 20, seed=0, envs=2)
    (tmp_path / 'reference.csv').write_text(REFERENCE)
    return tmp_path / 'logs'


def experiments(folder, metric='scores/score', axis='step', in_frames=False):
    return find_experiments(find_runs([folder]), metric, axis, in_frames)


def test_seeds_are_averaged_within_bins(folder):
    first, second = experiments(folder)
    assert (first.task, first.label) == ('toy_catch', 'run.envs=16')
    assert [len(one.runs) for one in (first, second)] == [3, 1]
    edges = np.array([0.0, 2.0, 4.0])
    # Means per bin: 2 and 6; 3 and 1; 9 and nothing.
    cases = {
        ('mean', 'range'): ([14 / 3, 3.5], [2, 1], [9, 6]),
        ('median', 'range'): ([3, 3.5], [2, 1], [9, 6]),
        ('mean', 'none'): ([14 / 3, 3.5], [14 / 3, 3.5], [14 / 3, 3.5]),
        ('median', 'quartiles'): ([3, 3.5], [2.5, 2.25], [6, 4.75]),
        ('mean', 'std'): ([14 / 3, 3.5], None, [14 / 3 + 3.0912, 6]),
    }
    for (statistic, band), (middle, low, high) in cases.items():
        found = first.curve(edges, statistic, band)
        np.testing.assert_allclose(found[0], middle)
        np.testing.assert_allclose(found[2], high, rtol=1e-4)
        if low is not None:
            np.testing.assert_allclose(found[1], low)


def test_bins_are_those_of_the_reference_and_points_at_their_ends(tmp_path):
    make_scores(tmp_path / 'run', [1.0] * 9 + [3.0] * 15)
    (tmp_path / 'reference.csv').write_text(REFERENCE)
    (one,) = experiments(tmp_path / 'run')
    references = read_reference(tmp_path / 'reference.csv')[:1]
    edges = figure._edges(one.end, references, None)
    assert edges.tolist() == [0, 10, 20, 30]
    middle, _, _ = one.curve(edges, 'mean', 'range')
    np.testing.assert_allclose(middle, [1.2, 3, 3])
    # It ended at 24, before the third bin was nearly full.
    assert figure._places(edges, one.end).tolist() == [10, 20, 24]
    assert figure._places(edges, 28.0).tolist() == [10, 20, 30]
    assert figure._edges(30.0, [], None).tolist() == np.linspace(0, 30, 61).tolist()


def test_time_is_in_hours_of_training(folder):
    first, _ = experiments(folder, axis='time')
    assert first.runs[0].x.tolist() == [0, 1, 2, 3]


def test_means_of_fewer_runs_are_dashed(folder, tmp_path):
    """The runs end at steps 4, 4 and 2."""
    out = tmp_path / 'curves.svg'
    flags = ['--out', str(out), '--bins', '4', '--band', 'none']
    assert plot.main([*(str(folder / f'a{i}') for i in range(3)), *flags]) == 0
    dashed = out.read_text().count('stroke-dasharray')
    assert plot.main([*(str(folder / f'a{i}') for i in range(2)), *flags]) == 0
    assert dashed > out.read_text().count('stroke-dasharray') == 0


def test_repeated_runs_of_a_seed_are_runs_and_not_seeds(folder):
    make_scores(folder / 'again', [1.0, 2.0], seed=0)
    first, second = experiments(folder)
    assert (len(first.runs), first.seeds) == (4, 3)
    assert (len(second.runs), second.seeds) == (1, 1)


def test_the_final_score_is_the_same_wherever_it_is_printed(folder, tmp_path, capsys):
    plot.main([str(folder / 'a0'), '--out', str(tmp_path / 'curves.svg')])
    *_, row, definition, _ = capsys.readouterr().out.splitlines()
    assert definition == DEFINITION
    assert row.split('|')[6].strip() == '7'
    assert final_score(folder / 'a0') == 7
    again = {'step': 3, 'time': 1.0, 'env': 0, 'score': 4.0, 'length': 1}
    append(folder / 'a0' / 'scores.jsonl', again | {'eval': False})
    assert final_score(folder / 'a0') == 4.5  # both of step 3; step 4 was lost
    assert final_score(tmp_path) is None


def test_bins_without_a_score_are_left_out(folder):
    _, second = experiments(folder)
    middle, _, _ = second.curve(np.array([0.0, 20.0, 30.0]), 'mean', 'range')
    assert middle[0] == 1.0
    assert np.isnan(middle[1])


@pytest.mark.parametrize('suffix', ['png', 'pdf', 'svg'])
def test_a_figure_is_written_in_the_format_of_its_name(
    folder, tmp_path, suffix, capsys
):
    out = tmp_path / 'new' / f'curves.{suffix}'
    table = tmp_path / 'table.csv'
    flags = ['--out', str(out), '--table', str(table), '--bins', '2']
    flags += ['--reference', str(tmp_path / 'reference.csv')]
    assert plot.main([str(folder), *flags]) == 0
    start = {'png': b'\x89PNG', 'pdf': b'%PDF', 'svg': b'<?xml'}[suffix]
    assert out.read_bytes().startswith(start)
    if suffix == 'svg':
        for text in ('toy_catch', 'run.envs=16', 'Reference (toys)', 'Episode return'):
            assert text in out.read_text()
    if suffix == 'png':
        colors = Image.open(out).convert('RGB').getcolors(1 << 24)
        assert {(53, 102, 207), (212, 88, 31)} <= {color for _, color in colors}
    rows = list(csv.DictReader(table.read_text().splitlines()))
    # Means of the last tenth: 7, 2 and 9.
    assert [rows[0][key] for key in ('seeds', 'mean', 'median', 'min', 'max')] == [
        '3', '6', '7', '2', '9',
    ]  # fmt: skip
    assert rows[0]['reference (toys)'] == ''  # it begins later than the runs end
    assert rows[1]['reference (toys)'] == '3'  # at 20 frames
    assert '| toy_catch | run.envs=16 |' in capsys.readouterr().out


def test_a_reference_is_in_frames_and_so_are_the_runs():
    assert frames_per_step({'env.dmc.repeat': 2}, 'dmc_walker_walk') == 2
    assert frames_per_step({'env.dmc.repeat': 2}, 'toy_catch') == 1


@pytest.mark.parametrize(
    'suite, task, ours, shown',
    [
        ('atari100k', 'atari_pong', 'atari100k_pong', True),
        ('atari100k', 'atari_pong', 'atari100k_breakout', False),
        ('dmc_proprio', 'dmc_walker_walk', 'dmc_walker_walk', True),
        ('dmc_proprio', 'dmc_walker_walk', 'dmc_walker_run', False),
    ],
)
def test_tasks_are_found_by_the_names_of_the_reference(
    tmp_path, suite, task, ours, shown
):
    (tmp_path / 'reference.csv').write_text(
        f'suite,task,env_frames,seeds,mean,min,max\n{suite},{task},4,5,3,2,4\n'
    )
    make_scores(tmp_path / 'run', [1.0, 3.0], task=ours)
    out, flags = tmp_path / 'curves.svg', ['--table', str(tmp_path / 'table.md')]
    flags += ['--out', str(out), '--reference', str(tmp_path / 'reference.csv')]
    plot.main([str(tmp_path / 'run'), *flags])
    assert ('Reference' in out.read_text()) == shown
    assert ('reference' in (tmp_path / 'table.md').read_text()) == shown


def test_a_reference_is_sorted_by_frames(tmp_path):
    (tmp_path / 'reference.csv').write_text(REFERENCE)
    first, second = read_reference(tmp_path / 'reference.csv')
    assert (first.suite, first.task, first.seeds) == ('toys', 'toy_catch', 5)
    assert first.frames.tolist() == [10, 20]
    assert first.low.tolist() == [0, 2]
    assert second.task == 'other_task'


def test_markdown_cells_do_not_break_the_table():
    text = render([['a|b', 'c'], ['1', '22']], '.md')
    assert text == '| a\\|b | c  |\n|------|----|\n| 1    | 22 |\n'


@pytest.mark.parametrize(
    'flags, message',
    [
        (['nowhere'], "no folder 'nowhere'"),
        (['{}', '--metric', 'no/such'], "No run has a metric 'no/such'"),
        (['{}', '--out', 'curves.gif'], 'must end in .png, .pdf, .svg'),
        (['{}', '--table', 'table.xls'], 'must end in .csv or .md'),
        (['{}', '--suite', 'toys'], 'give --reference'),
        (['{}', '--bins', '0'], 'at least 1'),
        (['{}', '--reference', 'nowhere.csv'], 'Cannot read the reference'),
        (['{}', '--reference', '{}/a0/config.yaml'], 'lacks suite'),
    ],
)
def test_mistakes_are_explained(folder, tmp_path, monkeypatch, flags, message):
    monkeypatch.chdir(tmp_path)
    flags = [flag.format(folder) for flag in flags]
    with pytest.raises(ConfigError, match=message):
        plot.main(flags)


def test_runs_without_options_stay_apart(tmp_path):
    for name in ('one', 'two'):
        make_scores(tmp_path / name, [1.0])
        (tmp_path / name / 'config.yaml').unlink()
    found = experiments(tmp_path)
    assert [(one.task, one.label) for one in found] == [('', 'one'), ('', 'two')]
    assert all(isinstance(one, Experiment) for one in found)


def test_names_in_the_table_cannot_steer_the_terminal():
    text = render([['task'], ['\x1b[2J\nfake\u202e']], '.md')
    assert text.splitlines()[2] == '| \\x1b[2J\\nfake\\u202e |'


def test_the_final_score_does_not_depend_on_the_axis(tmp_path):
    make_run(tmp_path / 'run', 0)
    for step, (time, score) in enumerate([(1, 5.0), (98, 1.0), (99, 1.0), (100, 3.0)]):
        record = {'step': step, 'time': time, 'env': 0, 'length': 1, 'eval': False}
        append(tmp_path / 'run' / 'scores.jsonl', record | {'score': score})
    for axis in ('step', 'time'):
        (one,) = experiments(tmp_path, axis=axis)
        assert one.runs[0].final() == 3  # that of the last step
