"""The server, as a process: what it answers, whom it refuses, how it ends."""

import json

import pytest
from dashboards import Dashboard, dashboard
from sample_runs import append, line, make_run, make_video, write_status


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp('logdir')
    make_run(folder / 'catch' / 'seed0', 30, level=1.0, seed=0)
    make_run(folder / 'catch' / 'seed1', 30, level=3.0, seed=1)
    make_run(folder / 'other', 10, level=1.0, envs=2)
    make_video(folder / 'other', 1000)
    (folder / 'reference.csv').write_text(
        'suite,task,env_frames,seeds,mean,min,max\n'
        'toys,toy_catch,1000,3,0.5,0.25,0.75\ntoys,toy_catch,2000,3,1,1,1\n'
    )
    return folder


@pytest.fixture(scope='module')
def server(folder):
    with dashboard(folder, '--reference', str(folder / 'reference.csv')) as server:
        yield server


@pytest.fixture(scope='module')
def runs(server):
    return server.wait_until(lambda known: len(known) == 3)


def test_runs_are_listed_with_state_and_progress(runs):
    assert sorted(runs) == ['catch/seed0', 'catch/seed1', 'other']
    run = runs['catch/seed1']
    assert (run['task'], run['seed'], run['state']) == ('toy_catch', 1, 'done')
    assert run['step'] == 2900
    assert run['latest']['fps/env'] == 118.0
    assert run['group'] == runs['catch/seed0']['group'] != runs['other']['group']


def test_curves_come_with_one_value_per_place(server, runs):
    query = {'runs': runs['other']['id'], 'metric': ['train/updates', 'no/such']}
    charts = server.json('/api/series', query)['charts']
    assert charts['no/such'] == {'x': [], 'curves': []}
    chart = charts['train/updates']
    assert chart['x'] == [100.0 * i for i in range(10)]
    (curve,) = chart['curves']
    assert curve['mean'] == [25.0 * i for i in range(10)]
    by_time = server.json('/api/series', query | {'x': 'time'})['charts']
    seconds = [5.0 + 2.0 * i for i in range(10)]  # of training
    assert by_time['train/updates']['x'] == seconds


def test_seeds_become_one_curve_with_a_band(server, runs):
    ids = ','.join(run['id'] for run in runs.values())
    query = {'runs': ids, 'metric': 'train/loss/total', 'group': 'seeds'}
    chart = server.json('/api/series', query)['charts']['train/loss/total']
    merged = next(curve for curve in chart['curves'] if len(curve['runs']) == 2)
    assert (merged['low'][0], merged['mean'][0], merged['high'][0]) == (10, 20, 30)
    assert len(chart['curves']) == 2


def test_the_reference_of_a_task_is_sent_along(server, runs):
    query = {'runs': runs['other']['id'], 'metric': 'scores/score', 'reference': '1'}
    (band,) = server.json('/api/series', query)['reference']
    assert band['x'] == [1000, 2000]
    assert (band['low'][0], band['mean'][0], band['high'][0]) == (0.25, 0.5, 0.75)


def test_a_run_has_options_events_and_videos(server, runs):
    run = server.json(f'/api/runs/{runs["other"]["id"]}')
    assert run['options']['run.envs'] == 2
    assert [event['event'] for event in run['events']] == ['start', 'stop']
    kinds = {item['kind']: item for item in run['videos']}
    assert kinds['image/gif']['step'] == 1000
    path = f'/api/runs/{run["id"]}/videos/{kinds["image/gif"]["file"]}'
    status, headers, body = server.get(path)
    assert (status, headers['content-type']) == (200, 'image/gif')
    assert body.startswith(b'GIF8')


def test_a_page_may_load_nothing_from_elsewhere(server):
    status, headers, body = server.get('/')
    assert status == 200
    assert b'http' not in body
    policy = headers['content-security-policy']
    assert "default-src 'none'" in policy
    assert 'unsafe' not in policy
    assert headers['x-content-type-options'] == 'nosniff'


@pytest.mark.parametrize(
    'host, status',
    [
        ('localhost', 200),
        ('127.0.0.1:80', 200),
        ('[::1]:8765', 200),
        ('evil.example', 421),
        ('localhost.evil.example', 421),
        ('', 421),
        ('[::1', 421),
    ],
)
def test_on_loopback_only_names_of_this_machine_are_served(server, host, status):
    assert server.get('/', host=host)[0] == status


def test_changes_are_told_as_they_happen(server, folder, runs):
    path = folder / 'other'
    with server.changes() as messages:
        assert len(next(messages)['runs']) == 3
        append(path / 'metrics.jsonl', line(50))
        (change,) = next(messages)['runs'].values()
        assert change['step'] == 5000
        write_status(path, env8='restarting')
        (change,) = next(messages)['runs'].values()
        assert change['state'] == 'running'
        assert change['roles']['env8']['state'] == 'restarting'
        make_run(folder / 'fourth', 3)
        message = next(messages)
        assert [run['name'] for run in message['runs'].values()] == ['fourth']
        assert len(message['ids']) == 4


def test_a_token_opens_the_dashboard_and_moves_into_a_cookie(folder):
    with dashboard(folder, '--host', '0.0.0.0') as server:
        token = server.url.partition('?token=')[2]
        assert len(token) > 20
        for path in (
            '/',
            '/api/changes',
            '/static/app.js',
            '/?token=wrong',
            '/?token=%00',
        ):
            status, _, body = server.get(path)
            assert status == 401, path
            assert token.encode() not in body
        status, headers, _ = server.get(f'/?token={token}', host='any.example')
        assert (status, headers['location']) == (303, '/')
        cookie = headers['set-cookie'].partition(';')[0]
        assert 'httponly' in headers['set-cookie'].lower()
        assert server.get('/', cookie=cookie, host='any.example')[0] == 200
        assert server.get('/', cookie=cookie + 'x')[0] == 401
        status, headers, _ = server.get(f'//evil.example?token={token}')
        assert headers['location'] == '/evil.example'


def test_the_address_that_is_printed_opens_it_with_any_token(folder):
    with dashboard(folder, '--token', 'a b&c+100%#') as server:
        path = server.url.removeprefix(f'http://127.0.0.1:{server.port}')
        status, headers, _ = server.get(path)
        assert (status, headers['location']) == (303, '/')
        cookie = headers['set-cookie'].partition(';')[0]
        assert server.get('/', cookie=cookie)[0] == 200


def test_it_ends_while_pages_are_open(folder):
    server = Dashboard(folder)
    with server.changes() as messages:
        next(messages)
        assert server.close() == 0


def test_json_of_a_run_is_ascii(server, runs):
    _, _, body = server.get(f'/api/runs/{runs["other"]["id"]}')
    assert body.isascii()
    assert json.loads(body)
