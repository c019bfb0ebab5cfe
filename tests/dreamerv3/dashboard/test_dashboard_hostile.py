"""Broken, half-written and hostile folders: nothing breaks and nothing leaks out."""

import http.client
import json
import math
import os

import pytest
from dashboards import dashboard
from sample_runs import append, line, make_run, make_video

from dreamerv3.dashboard.runs.folders import Run, find_runs, pictures
from dreamerv3.dashboard.runs.options import read_options
from dreamerv3.dashboard.runs.run_files import read_object
from dreamerv3.dashboard.runs.state import read_events, run_state
from dreamerv3.dashboard.runs.summary import Summarizer
from dreamerv3.dashboard.series.records import LONGEST_LINE, MOST_NAMES, READ
from dreamerv3.dashboard.series.reference import frames_per_step
from dreamerv3.dashboard.series.series_cache import SeriesCache

SECRET = 'the content of a file that is not in the given folder'

BROKEN_LINES = {
    'nothing': b'',
    'no json': b'{"step": 1, "time": 2, "a": ',
    'no object': b'[1, 2, 3]',
    'no step': b'{"time": 1.0, "a": 1.0}',
    'no number for a step': b'{"step": "1", "time": 1.0, "a": 1.0}',
    'truth for a step': b'{"step": true, "time": 1.0, "a": 1.0}',
    'infinite step': b'{"step": Infinity, "time": 1.0, "a": 1.0}',
    'huge step': b'{"step": 1' + b'0' * 4000 + b', "time": 1.0, "a": 1.0}',
    'too many digits': b'{"step": ' + b'9' * 5000 + b', "time": 1.0, "a": 1.0}',
    'no value': b'{"step": 1, "time": 1.0, "a": null}',
    'not a number': b'{"step": 1, "time": 1.0, "a": NaN}',
    'huge value': b'{"step": 1, "time": 1.0, "a": 1' + b'0' * 400 + b'}',
    'nested': b'{"step": 1, "time": 1.0, "a": {"b": [1]}}',
    'deep': b'[' * 200_000,
    'no text': b'\xff\xfe\x00\x01',
    'half a character': b'{"step": 1, "time": 1.0, "\\ud800": "\\udfff"}',
    'long': b'x' * (READ + LONGEST_LINE),
}


@pytest.mark.parametrize('name', BROKEN_LINES)
def test_broken_lines_leave_the_others_whole(tmp_path, name):
    folder = tmp_path / 'run'
    folder.mkdir()
    path = folder / 'metrics.jsonl'
    good = b'{"step": %d, "time": 0.5, "a": 1.5}\n'
    many = b''.join(good % i for i in range(2, 20_000))
    path.write_bytes(good % 0 + BROKEN_LINES[name] + b'\n' + good % 1 + many)
    for within in (0, 60):  # sampled, and read to the end
        series = SeriesCache(within).read([folder], ['a'])[folder].series['a']
        assert set(series['mean']) == {1.5}
    assert series['count'].sum() in (2 + many.count(b'\n'), 1 + many.count(b'\n'))
    json.dumps(SeriesCache().names([folder])).encode()
    Summarizer().summary(Run('0', 'run', folder))


def test_a_file_with_endless_names_is_cut(tmp_path):
    folder = tmp_path / 'run'
    folder.mkdir()
    for i in range(3):
        names = {f'{i}/{j}': 1.0 for j in range(MOST_NAMES)}
        append(folder / 'metrics.jsonl', {'step': i, 'time': 1.0} | names)
    cache = SeriesCache()
    cache.read([folder], [])
    assert len(cache.names([folder])) == MOST_NAMES


@pytest.mark.parametrize(
    'make',
    [
        lambda path: os.mkfifo(path),
        lambda path: path.mkdir(),
        lambda path: path.symlink_to('/dev/zero'),
        lambda path: path.symlink_to(path.parent.parent / 'secret'),
        lambda path: path.symlink_to(path),
        lambda path: path.write_bytes(b'\x00' * 100),
        lambda path: path.write_bytes(b''),
        lambda path: path.touch(mode=0),
    ],
)
def test_things_in_place_of_files_are_no_files(tmp_path, make):
    append(tmp_path / 'secret', {'step': 1, 'time': 1.0, 'a': 1.0, 'pid': 1})
    folder = tmp_path / 'run'
    folder.mkdir()
    for name in (
        'metrics.jsonl', 'scores.jsonl', 'events.jsonl', 'status.json', 'config.yaml'
    ):  # fmt: skip
        make(folder / name)
    assert SeriesCache().read([folder], ['a'])[folder].series == {}
    assert read_events(folder) == []
    assert read_object(folder / 'status.json') is None
    summary = Summarizer().summary(Run('0', 'run', folder))
    assert (summary['state'], summary['step'], summary['task']) == ('unknown', None, '')


def bomb():
    """Nine lines of YAML that stand for a billion options."""
    lines = ['a0: &a0 {x: 1, y: 2}']
    for level in range(1, 9):
        inner = ', '.join(f'k{i}: *a{level - 1}' for i in range(10))
        lines.append(f'a{level}: &a{level} {{{inner}}}')
    return '\n'.join(lines)


HOSTILE_OPTIONS = {
    'broken': '{',
    'a list': '- 1',
    'code': 'a: !!python/object/apply:os.system [true]',
    'a bomb': bomb(),
    'deep': '[' * 5000,
    'a circle': 'a: &a [*a]',
    'a circle of names': 'a: &a {b: *a}',
}


@pytest.mark.parametrize('text', HOSTILE_OPTIONS.values(), ids=HOSTILE_OPTIONS)
def test_hostile_options_are_bounded(tmp_path, text):
    (tmp_path / 'config.yaml').write_text(text)
    options = read_options(tmp_path / 'config.yaml')
    assert len(json.dumps(options)) < 10_000_000


@pytest.mark.parametrize(
    'status',
    [
        {},
        {'state': 'running', 'pid': 'x', 'roles': 3},
        {'state': ['running'], 'pid': -1, 'started': {}, 'roles': {'a': 1, 'b': {}}},
        {'state': 'running', 'pid': 10**30, 'uptime': None, 'heartbeat': 'now'},
        {'state': 'running', 'host': None, 'boot': 1, 'pid': 1, 'started': 10**400},
    ],
)
def test_a_status_that_makes_no_sense_is_unknown_or_dead(tmp_path, status):
    (tmp_path / 'status.json').write_text(json.dumps(status))
    assert run_state(tmp_path, [])['state'] in ('unknown', 'dead')


@pytest.mark.parametrize(
    'repeat', [math.inf, math.nan, pytest.param(10**400, id='huge'), -4, 0, '4', None]
)
def test_a_run_with_a_senseless_action_repeat_counts_its_steps(repeat):
    assert frames_per_step({'env.toy.repeat': repeat}, 'toy_catch') == 1.0


def test_links_out_of_the_folders_are_not_followed(tmp_path):
    outside = make_run(tmp_path / 'outside', 3)
    make_video(outside, 1)
    roots = tmp_path / 'logdir'
    run = make_run(roots / 'run', 3)
    (roots / 'link').symlink_to(outside)
    (run / 'videos').symlink_to(outside / 'videos')
    (found,) = find_runs([roots])
    assert found.name == 'run'
    assert pictures(found) == []
    (run / 'videos').unlink()
    (run / 'videos').mkdir()
    (run / 'videos' / 'film-1.gif').symlink_to(tmp_path / 'secret')
    (run / 'videos' / 'notes.txt').write_text(SECRET)
    assert pictures(found) == []


@pytest.fixture(scope='module')
def served(tmp_path_factory):
    """A dashboard over a folder in which everything is wrong, and a sound run."""
    home = tmp_path_factory.mktemp('home')
    (home / 'secret.gif').write_text(SECRET)
    (home / 'secret').write_text(SECRET)
    run = make_run(home / 'logdir' / 'run', 5)
    make_video(run, 1)
    (run / 'videos' / 'link-1.gif').symlink_to(home / 'secret.gif')
    (run / 'logs').mkdir()
    (run / 'logs' / 'link.log').symlink_to(home / 'secret')
    (run / 'config.yaml').write_text(
        'task: toy_catch\nseed: .nan\nnote: "\\ud83d"\nenv: {toy: {repeat: .inf}}\n'
    )
    wrong = make_run(home / 'logdir' / 'na\udcffme', 5)
    append(wrong / 'metrics.jsonl', line(6) | {'\ud800': 1.0, 'a' * 5000: 1.0})
    append(wrong / 'events.jsonl', {'time': float('nan'), 'event': '\udfff'})
    for index, content in enumerate(BROKEN_LINES.values()):
        folder = home / 'logdir' / f'broken{index}'
        folder.mkdir()
        for name in ('metrics.jsonl', 'scores.jsonl', 'events.jsonl', 'status.json'):
            (folder / name).write_bytes(content + b'\n')
    with dashboard(home / 'logdir') as server:
        known = server.wait_until(lambda known: len(known) == 2 + len(BROKEN_LINES))
        yield server, known


def test_broken_runs_are_listed_and_answered(served):
    server, known = served
    ids = ','.join(run['id'] for run in known.values())
    names = server.json('/api/names', {'runs': ids})
    for start in range(0, len(names), 20):
        part = names[start : start + 20]
        charts = server.json('/api/series', {'runs': ids, 'metric': part})['charts']
        assert sorted(charts) == sorted(part)
        assert all(chart['curves'] for chart in charts.values())
    for run in known.values():
        assert server.json(f'/api/runs/{run["id"]}')['id'] == run['id']


TRAVERSALS = [
    '/../secret',
    '/static/../../secret',
    '/static/%2e%2e/%2e%2e/secret',
    '/static/..%2f..%2fsecret',
    '/static//etc/passwd',
    '/static/vendor/../../server.py',
    '/api/runs/../../secret',
    '/api/runs/%2e%2e%2f%2e%2e%2fsecret',
    '/api/runs/{id}/videos/../config.yaml',
    '/api/runs/{id}/videos/..%2f..%2f..%2fsecret',
    '/api/runs/{id}/videos/%2e%2e%5csecret.gif',
    '/api/runs/{id}/videos/link-1.gif',
    '/api/runs/{id}/videos/.hidden.gif',
    '/api/runs/{id}/videos/%00.gif',
    '/api/runs/{id}/videos//etc/passwd',
    '/api/runs/{id}/videos/',
    '/api/runs/{id}/logs/..%2fconfig.yaml',
    '/api/runs/{id}/logs/../config.yaml',
    '/api/runs/{id}/logs/link.log',
    '/api/runs/{id}/logs/link.log/stream',
    '/api/runs/{id}/logs/..%2f..%2f..%2fsecret/stream',
    '/api/runs/{id}/logs/%00.log',
    '/api/runs/{name}',
    '/api/nothing',
]


@pytest.mark.parametrize('path', TRAVERSALS)
def test_no_request_reads_outside_of_the_folders(served, path):
    server, known = served
    target = path.format(id=known['run']['id'], name='run')
    status, _, body = server.get(target)
    assert status in (400, 404), (status, body)
    assert SECRET.encode() not in body
    assert b'root:' not in body


QUERIES = [
    {'runs': '../../secret', 'metric': 'a'},
    {'runs': '*', 'metric': "'; drop table series; --"},
    {'metric': ['a'] * 500},
    {'x': 'nothing', 'from': 'nan', 'to': '-inf', 'metric': 'fps/env'},
    {'from': '1e999', 'to': 'x', 'metric': 'scores/score', 'group': 'option:'},
    {'metric': 'scores/score', 'group': 'option:__proto__', 'x': 'updates'},
    {'metric': '\ud7ff\x00' + 'x' * 3000},
    {'metric': 'scores/score', 'x': 'frames', 'reference': '1'},
]


@pytest.mark.parametrize('query', QUERIES)
def test_senseless_questions_get_answers(served, query):
    server, known = served
    for runs in ({}, {'runs': known['run']['id']}):
        assert 'charts' in server.json('/api/series', query | runs)
    assert server.json('/api/names', {'runs': 'x'}) == []


@pytest.mark.parametrize('method', ['POST', 'PUT', 'DELETE', 'OPTIONS'])
def test_nothing_but_a_label_can_be_changed(served, method):
    server, known = served
    origin = f'http://127.0.0.1:{server.port}'
    headers = {'origin': origin, 'content-type': 'application/json'}
    connection = http.client.HTTPConnection('127.0.0.1', server.port, timeout=30)
    connection.request(method, f'/api/runs/{known["run"]["id"]}', headers=headers)
    assert connection.getresponse().status == 405
    connection.close()
