"""What the table, the distributions, the axes and the groups are made of."""

import json
import random

import numpy as np
import pytest
from dashboards import dashboard
from sample_runs import START, append, line, make_run

from dreamerv3.dashboard.figures.distribution import bin_edges, distributions
from dreamerv3.dashboard.figures.final_score import final_score
from dreamerv3.dashboard.series import file_end
from dreamerv3.dashboard.series.file_end import last_points
from dreamerv3.dashboard.series.series_cache import SeriesCache


def write_scores(folder, rng, sessions):
    """Episodes of sessions, each of which begins before the end of the one before.

    Returns the steps and scores of training that are not repeated later.
    """
    step, written = 0, []
    with (folder / 'scores.jsonl').open('w') as file:
        for _ in range(sessions):
            step = max(0, step - rng.randrange(2000))
            for _ in range(rng.randrange(1, 400)):
                step += rng.randrange(1, 20)
                record = {'step': step, 'time': 1.0, 'env': 0, 'length': 5}
                record |= {'score': rng.gauss(0, 1), 'eval': rng.random() < 0.2}
                file.write(json.dumps(record) + '\n')
                if not record['eval']:
                    written.append((step, record['score']))
        file.write('{"step": 1, "time": 1.0, "sco')  # is being written
    kept, lowest = [], float('inf')  # of all steps further down
    for step, score in reversed(written):
        if step <= lowest:
            kept.append((step, score))
        lowest = min(lowest, step)
    return kept[::-1]


@pytest.mark.parametrize('seed', range(20))
def test_the_end_of_a_file_has_the_points_of_the_whole_file(
    tmp_path, monkeypatch, seed
):
    rng = random.Random(seed)
    monkeypatch.setattr(file_end, 'BLOCK', rng.choice([100, 1000, 1 << 18]))
    monkeypatch.setattr(file_end, 'LONGEST_LINE', 1000)
    kept = write_scores(tmp_path, rng, rng.randrange(1, 5))
    for share in (0.1, 0.5, 1.0):
        wanted = [x for s, x in kept if s >= (1 - share) * kept[-1][0]]
        points = last_points(tmp_path / 'scores.jsonl', 'scores/score', share)
        assert points['mean'].tolist() == wanted
    last = [x for s, x in kept if s >= 0.9 * kept[-1][0]]
    assert final_score(tmp_path) == pytest.approx(np.mean(last), rel=1e-12)


def test_lines_that_are_no_records_do_not_end_the_search(tmp_path, monkeypatch):
    monkeypatch.setattr(file_end, 'BLOCK', 100)
    monkeypatch.setattr(file_end, 'LONGEST_LINE', 1000)
    episode = '{"step": %d, "time": 1.0, "score": %d, "length": 1, "eval": false}\n'
    lines = [episode % (95, 1), 'x' * 5000 + '\n', '\n', episode % (100, 3), '{}\n']
    (tmp_path / 'scores.jsonl').write_text(''.join(lines))
    assert final_score(tmp_path) == 2
    (tmp_path / 'scores.jsonl').write_text('')
    assert final_score(tmp_path) is None
    (tmp_path / 'scores.jsonl').unlink()
    assert final_score(tmp_path) is None


def test_few_whole_numbers_have_a_bin_each():
    edges = bin_edges(np.array([1.0, 3.0, 3.0, 2.0]))
    assert edges.tolist() == [0.5, 1.5, 2.5, 3.5]
    assert bin_edges(np.array([0.25, 0.25])).tolist() == [-0.25, 0.75]
    edges = bin_edges(np.array([0.0, 0.5, 80.0]))
    assert (edges[0], edges[1], edges[-1], len(edges)) == (0, 2, 80, 41)


@pytest.mark.parametrize(
    'scores', [[-1e308, 1e308], [1e300, 1e300], [1e17, 1e17 + 32], [2.0**60, 0.5]]
)
def test_scores_of_any_size_are_distributed(scores):
    found = distributions({'a': np.array(scores)})
    assert np.isfinite(found['edges']).all() and (np.diff(found['edges']) >= 0).all()
    assert sum(found['groups']['a']['shares']) == 1


def test_distributions_share_their_bins():
    values = {
        'a': np.array([1.0, 1.0, 2.0, 4.0]),
        'b': np.array([3.0]),
        'c': np.ones(0),
    }
    found = distributions(values)
    assert found['edges'] == [0.5, 1.5, 2.5, 3.5, 4.5]
    a = found['groups']['a']
    assert a['shares'] == [0.5, 0.25, 0, 0.25]
    assert (a['episodes'], a['mean'], a['median'], a['std']) == (4, 2, 1.5, 1.5**0.5)
    assert (a['low'], a['quarter'], a['three_quarters'], a['high']) == (1, 1, 2.5, 4)
    assert found['groups']['b']['shares'] == [0, 0, 1, 0]
    assert 'c' not in found['groups']
    assert distributions({'c': np.ones(0)}) == {'edges': [], 'groups': {}}


def test_points_are_placed_at_the_updates_of_their_time(tmp_path):
    # Nothing is trained for three lines; a crash after the sixth repeats two of them.
    for step, updates, time in [
        (0, 0, 0), (10, 0, 10), (20, 0, 20), (30, 40, 30), (40, 80, 40), (50, 120, 50),
        (40, 70, 60), (50, 110, 70), (60, 160, 80),
    ]:  # fmt: skip
        record = {'step': step, 'time': START + time, 'a': float(time)}
        append(tmp_path / 'metrics.jsonl', record | {'train/updates': updates})
    episode = {'env': 0, 'length': 1, 'eval': False}
    for step, time, score in [(5, 5, 1.0), (15, 15, 3.0), (35, 35, 5.0), (65, 90, 7.0)]:
        record = {'step': step, 'time': START + time, 'score': score} | episode
        append(tmp_path / 'scores.jsonl', record)
    for within in (0, 60):  # sampled, and read to the end
        found = SeriesCache(within).read([tmp_path], ['a', 'scores/score'])[tmp_path]
        places = found.over('a', 'updates')
        assert places['time'].tolist() == [0, 40, 70, 110, 160]
        assert places['mean'].tolist() == [10, 30, 60, 70, 80]
        assert (places['low'][0], places['high'][0], places['count'][0]) == (0, 20, 3)
        scores = found.over('scores/score', 'updates')
        assert scores['time'].tolist() == [0, 60, 160]
        assert scores['mean'].tolist() == [2, 5, 7]
        frames = found.over('scores/score', 'frames', 4.0)
        assert frames['step'].tolist() == [20, 60, 140, 260]
        assert found.series['scores/score']['step'].tolist() == [5, 15, 35, 65]


def test_a_run_without_updates_has_no_curve_over_them(tmp_path):
    append(tmp_path / 'metrics.jsonl', {'step': 1, 'time': 1.0, 'a': 1.0})
    found = SeriesCache().read([tmp_path], ['a'])[tmp_path]
    assert len(found.over('a', 'updates')) == 0


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp('logdir')
    for seed, (level, envs) in enumerate([(1.0, 4), (3.0, 4), (5.0, 8)]):
        run = make_run(folder / f'run{seed}', 20, level, seed=seed, envs=envs)
        options = json.loads((run / 'config.yaml').read_text())
        options |= {'env': {'toy': {'repeat': 4}}}
        (run / 'config.yaml').write_text(json.dumps(options))
    (folder / 'bare').mkdir()
    append(folder / 'bare' / 'metrics.jsonl', {'step': 3, 'time': START, 'fps/env': 1})
    return folder


@pytest.fixture(scope='module')
def server(folder):
    with dashboard(folder) as server:
        yield server


@pytest.fixture(scope='module')
def runs(server):
    known = server.wait_until(lambda known: len(known) == 4)
    return {name: run['id'] for name, run in known.items()}


def listed(runs, *names):
    return ','.join(runs[name] for name in names)


def test_options_become_columns(server, runs):
    found = server.json('/api/options', {'name': ['run.envs', 'seed', 'no.such']})
    assert found['runs'][runs['run2']] == {'run.envs': 8, 'seed': 2}
    assert found['runs'][runs['bare']] == {}
    # The run without options differs in all of them.
    names = {'run.envs': 3, 'seed': 4, 'task': 2}
    assert {name: found['names'][name] for name in names} == names


def test_final_scores_of_all_runs_follow_their_files(server, runs, folder):
    found = server.json('/api/finals')
    assert found['waiting'] == 0
    run = runs['run0']
    assert found['scores'][runs['bare']] is None
    assert found['scores'][run] == pytest.approx(final_score(folder / 'run0'))
    episode = {'time': START + 99, 'env': 0, 'score': 50.0, 'length': 1, 'eval': False}
    with server.changes() as messages:
        next(messages)
        append(folder / 'run0' / 'scores.jsonl', {'step': 9000} | episode)
        next(messages)
    assert server.json('/api/finals')['scores'][run] == 50


def test_runs_with_equal_options_become_one_curve(server, runs):
    query = {'runs': listed(runs, 'run0', 'run1', 'run2', 'bare')}
    query |= {'metric': 'train/loss/total', 'group': 'option:run.envs'}
    found = server.json('/api/series', query)
    members = [[runs['run0'], runs['run1']], [runs['run2']], [runs['bare']]]
    assert [group['runs'] for group in found['groups']] == members
    assert [group['value'] for group in found['groups']] == ['4', '8', None]
    four, eight = found['charts']['train/loss/total']['curves']
    assert (four['runs'], eight['runs']) == tuple(members[:2])
    assert (four['low'][0], four['mean'][0], four['high'][0]) == (10, 20, 30)
    assert eight['mean'][0] == 50


def test_curves_are_drawn_over_frames_and_updates(server, runs):
    query = {'runs': runs['run1'], 'metric': 'train/loss/total'}
    places = {
        x: server.json('/api/series', query | {'x': x})['charts']['train/loss/total'][
            'x'
        ]
        for x in ('step', 'frames', 'updates')
    }
    assert places['step'] == [100.0 * index for index in range(20)]
    assert places['frames'] == [400.0 * index for index in range(20)]
    assert places['updates'] == [25.0 * index for index in range(20)]
    query = {'runs': runs['bare'], 'metric': 'fps/env', 'x': 'updates'}
    assert server.json('/api/series', query)['charts']['fps/env']['curves'] == []


def test_distributions_are_of_runs_or_groups(server, runs):
    query = {'runs': listed(runs, 'run1', 'run2', 'bare'), 'kind': 'length'}
    found = server.json('/api/distributions', query)
    assert found['edges'] == [6.5, 7.5]
    assert found['groups'].keys() == {runs['run1'], runs['run2']}
    # The last tenth of 19 hundred steps: those from 1710 on, 2 lines of 4 episodes.
    assert found['groups'][runs['run1']]['episodes'] == 8
    query |= {'part': 'all', 'group': 'option:task'}
    found = server.json('/api/distributions', query)
    assert found['groups'][runs['run1']]['episodes'] == 160
    assert server.json('/api/distributions', query | {'eval': '1'})['groups'] == {}


def test_a_run_that_counts_its_seconds_lasts_as_long(server, runs, folder):
    known = server.wait_until(lambda known: len(known) == 4)
    assert known['run1']['latest']['run/seconds'] == line(19)['run/seconds'] == 43
