"""Logs of roles: their ends, what is added to them, and what is no log."""

import http.client
import json
from contextlib import contextmanager

import pytest
from dashboards import Dashboard, dashboard
from sample_runs import make_run

from dreamerv3.dashboard.runs import folders
from dreamerv3.dashboard.runs.folders import Run
from dreamerv3.dashboard.runs.log_files import LAST_BYTES, LogFollower, logs, read_log


def test_a_log_is_followed_from_its_end(tmp_path):
    path = tmp_path / 'agent.log'
    log = LogFollower(path)
    assert log.more() is None
    path.write_text('one\n')
    assert log.more() == ('one\n', True, 0)
    assert log.more() is None
    with path.open('ab') as file:
        file.write('zw\N{LATIN SMALL LETTER O WITH DIAERESIS}lf'.encode()[:3])
        file.flush()
        assert log.more() == ('zw', False, 0)  # half a character waits for the other
        file.write(b'\xb6lf\n')
        file.flush()
        assert log.more() == ('ölf\n', False, 0)


def test_a_long_log_begins_with_a_whole_line_near_its_end(tmp_path):
    path = tmp_path / 'agent.log'
    lines = [f'line {index}\n' for index in range(50_000)]
    path.write_text(''.join(lines))
    text, first, skipped = LogFollower(path).more()
    assert first
    assert len(text) <= LAST_BYTES
    assert path.read_text()[skipped:] == text
    assert text.startswith('line ')


def test_a_log_that_was_rotated_begins_once_more(tmp_path):
    path = tmp_path / 'agent.log'
    path.write_text('old and long\n')
    log = LogFollower(path)
    log.more()
    path.rename(tmp_path / 'agent.log.1')
    path.write_text('new\n')
    assert log.more() == ('new\n', True, 0)
    path.write_text('cut\n')  # as long, and then longer
    path.write_text('')
    assert log.more() == ('', True, 0)


def test_what_steers_a_terminal_is_left_out(tmp_path):
    path = tmp_path / 'agent.log'
    path.write_bytes(b'\x1b[1;31mred\x1b[0m 10%\r20%\r\nend\xff\x1b]0;title\x07\n')
    assert LogFollower(path).more().text == 'red 10%\n20%\nend\ufffd\n'


def test_a_log_that_is_renamed_while_logs_are_listed_is_left_out(tmp_path, monkeypatch):
    run = Run('0', 'run', tmp_path / 'run')
    folder = run.path / 'logs'
    folder.mkdir(parents=True)
    for name in ('env0.log', 'env1.log'):
        (folder / name).write_text('a log')
    found = folders._entries(folder)
    (folder / 'env0.log').rename(folder / 'env0.log.1')
    monkeypatch.setattr(folders, '_entries', lambda folder: found)
    assert [log['file'] for log in logs(run)] == ['env1.log']


def test_only_plain_files_are_logs(tmp_path):
    run = Run('0', 'run', tmp_path / 'run')
    folder = run.path / 'logs'
    folder.mkdir(parents=True)
    (tmp_path / 'secret').write_text('secret')
    (folder / 'link.log').symlink_to(tmp_path / 'secret')
    (folder / 'folder.log').mkdir()
    (folder / 'notes.txt').write_text('no log')
    (folder / 'env0.log').write_text('a log')
    (folder / 'env0.log.1').write_text('before')
    assert [log['file'] for log in logs(run)] == ['env0.log', 'env0.log.1']
    assert read_log(run, 'env0.log') == b'a log'
    assert read_log(run, 'link.log') == b''
    assert LogFollower(folder / 'link.log').more() is None
    other = Run('1', 'other', tmp_path / 'other')
    other.path.mkdir()
    (other.path / 'logs').symlink_to(folder)
    assert logs(other) == []


@pytest.fixture(scope='module')
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp('logdir')
    run = make_run(folder / 'run', 3)
    (run / 'logs').mkdir()
    (run / 'logs' / 'agent.log').write_text('<b>begins</b>\n')
    with dashboard(folder) as server:
        known = server.wait_until(lambda known: len(known) == 1)
        yield server, run / 'logs', f'/api/runs/{known["run"]["id"]}'


@contextmanager
def stream(server, path):
    connection = http.client.HTTPConnection('127.0.0.1', server.port, timeout=60)
    connection.request('GET', path)
    response = connection.getresponse()
    lines = (x for x in response if x.startswith(b'data: '))
    try:
        yield (json.loads(x[6:]) for x in lines)
    finally:
        connection.close()


def test_a_page_follows_a_log_as_it_grows(served):
    server, folder, address = served
    assert [x['file'] for x in server.json(address)['logs']] == ['agent.log']
    with stream(server, f'{address}/logs/agent.log/stream') as parts:
        begins = {'text': '<b>begins</b>\n', 'first': True, 'skipped': 0}
        assert next(parts) == begins
        with (folder / 'agent.log').open('a') as file:
            file.write('goes on\n')
        assert next(parts) == {'text': 'goes on\n', 'first': False, 'skipped': 0}


def test_a_log_is_sent_as_a_file(served):
    server, folder, address = served
    status, headers, body = server.get(f'{address}/logs/agent.log')
    assert (status, body) == (200, (folder / 'agent.log').read_bytes())
    assert headers['content-type'].startswith('text/plain')
    assert headers['content-disposition'] == 'attachment; filename="run-agent.log"'
    assert server.get(f'{address}/logs/replay.log')[0] == 404


def test_the_server_ends_while_a_log_is_followed(tmp_path):
    run = make_run(tmp_path / 'run', 3)
    (run / 'logs').mkdir()
    (run / 'logs' / 'agent.log').write_text('x\n')
    server = Dashboard(tmp_path)
    known = server.wait_until(lambda known: len(known) == 1)
    path = f'/api/runs/{known["run"]["id"]}/logs/agent.log/stream'
    with stream(server, path) as parts:
        next(parts)
        assert server.close() == 0
