"""Names, notes and hidden runs: kept in the run's folder, changed by the page only."""

import json
import os
import shutil

import pytest
from dashboards import dashboard
from sample_runs import make_run

from dreamerv3.dashboard.runs.labels import (
    LABEL_FILE,
    Label,
    LabelChangedError,
    read_label,
    write_label,
)
from embodied.core.errors import ConfigError

WITHOUT_POWERS = ('setpriv', '--inh-caps=-all', '--bounding-set=-all')
EMPTY = Label()._asdict()


def test_a_label_is_kept_field_by_field(tmp_path):
    assert read_label(tmp_path) == Label('', '', False)
    write_label(tmp_path, {'name': 'baseline'}, {'name': ''})
    write_label(tmp_path, {'notes': 'two\nlines', 'hidden': True}, EMPTY)
    assert read_label(tmp_path) == Label('baseline', 'two\nlines', True)
    assert [path.name for path in tmp_path.iterdir()] == [LABEL_FILE]


def test_a_change_that_has_not_seen_another_one_is_refused(tmp_path):
    write_label(tmp_path, {'notes': 'mine'}, {'notes': ''})
    with pytest.raises(LabelChangedError, match='changed elsewhere.*mine'):
        write_label(tmp_path, {'notes': 'yours'}, {'notes': ''})
    write_label(tmp_path, {'name': 'x'}, {'name': ''})  # another field
    write_label(tmp_path, {'notes': 'mine'}, {'notes': ''})  # the same once more
    assert read_label(tmp_path) == Label('x', 'mine', False)


def test_fields_of_a_later_version_stay(tmp_path):
    (tmp_path / LABEL_FILE).write_text('{"color": "red", "name": 3}')
    write_label(tmp_path, {'name': 'x'}, {'name': ''})
    record = json.loads((tmp_path / LABEL_FILE).read_text())
    assert record == {'color': 'red', 'name': 'x', 'notes': '', 'hidden': False}


@pytest.mark.parametrize(
    'changes',
    [
        {},
        {'path': '/etc/passwd'},
        {'name': 3},
        {'name': 'two\nlines'},
        {'name': 'x' * 201},
        {'name': '\ud800'},
        {'notes': ['x']},
        {'notes': 'x' * 20_001},
        {'hidden': 1},
        {'hidden': None},
    ],
)
def test_what_is_no_label_is_refused(tmp_path, changes):
    with pytest.raises(ConfigError):
        write_label(tmp_path, changes, changes)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    'make',
    [
        lambda path, other: path.symlink_to(other),
        lambda path, other: path.mkdir(),
        lambda path, other: os.mkfifo(path),
        lambda path, other: path.write_bytes(b'\xff not a label'),
        lambda path, other: path.write_text('[1]'),
    ],
)
def test_what_is_in_the_place_of_a_label_is_left_alone(tmp_path, make):
    run, other = tmp_path / 'run', tmp_path / 'other'
    run.mkdir()
    other.write_text('{"name": "of another folder"}')
    make(run / LABEL_FILE, other)
    assert read_label(run) == Label()
    with pytest.raises(ConfigError, match='Move it away'):
        write_label(run, {'name': 'x'}, {'name': ''})
    assert other.read_text() == '{"name": "of another folder"}'
    assert [path.name for path in run.iterdir()] == [LABEL_FILE]


def test_a_folder_that_became_a_link_is_not_written_through(tmp_path):
    (tmp_path / 'other').mkdir()
    (tmp_path / 'run').symlink_to(tmp_path / 'other')
    with pytest.raises(OSError):
        write_label(tmp_path / 'run', {'name': 'x'}, {'name': ''})
    assert list((tmp_path / 'other').iterdir()) == []


@pytest.fixture(scope='module')
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp('logdir')
    for name in ('run', 'kept'):
        make_run(folder / name, 3)
    with dashboard(folder) as server:
        yield server, folder, server.wait_until(lambda known: len(known) == 2)


def test_every_page_hears_of_a_change(served):
    server, folder, known = served
    run = known['run']['id']
    changes = {'name': '<b>baseline</b>', 'notes': 'works', 'hidden': True}
    with server.changes() as messages:
        next(messages)
        status, answer = server.change(run, changes, EMPTY)
        assert (status, answer) == (200, changes)
        (summary,) = next(messages)['runs'].values()
    assert summary | changes == summary
    assert (summary['folder'], summary['label']) == ('run', '<b>baseline</b>')
    assert read_label(folder / 'run') == Label(**changes)
    status, answer = server.change(run, {'notes': 'x'}, {'notes': ''})
    assert status == 409
    assert 'works' in answer['message']


FOREIGN = [
    {'origin': ''},
    {'origin': 'null'},
    {'origin': 'http://evil.example'},
    {'origin': 'http://localhost.evil.example:1'},
    {'origin': 'http://127.0.0.1:1'},
    {'sec_fetch_site': 'cross-site'},
    {'sec_fetch_site': 'same-site'},
    {'content_type': 'text/plain'},
    {'content_type': 'application/x-www-form-urlencoded'},
    {'content_type': ''},
]


@pytest.mark.parametrize('headers', FOREIGN, ids=str)
def test_another_page_cannot_change_anything(served, headers):
    server, folder, known = served
    if 'content_type' in headers:
        headers = {'content-type': headers['content_type']}
    body = json.dumps({'changes': {'name': 'evil'}, 'before': {'name': ''}})
    status, answer = server.put(known['kept']['id'], body, **headers)
    assert status == 403
    assert 'this dashboard only' in answer
    assert not (folder / 'kept' / LABEL_FILE).exists()


@pytest.mark.parametrize(
    'body, status',
    [
        (b'', 400),
        (b'\xff', 400),
        (b'[]', 400),
        (b'{"changes": {"name": "x"}}', 400),
        (b'{"changes": {"name": "../../x\\u0000"}, "before": {}}', 400),
        (b'{"changes": {"path": "/tmp"}, "before": {}}', 400),
        (b' ' * (1 << 19), 413),
    ],
)
def test_senseless_changes_are_refused(served, body, status):
    server, folder, known = served
    assert server.put(known['kept']['id'], body)[0] == status
    for run in ('nothing', '..', known['kept']['id'] + '%2f..'):
        assert server.put(run, body)[0] == 404 or body
    assert not (folder / 'kept' / LABEL_FILE).exists()


def test_a_token_is_needed_for_changes_as_well(served):
    _, folder, known = served
    body = json.dumps({'changes': {'name': 'x'}, 'before': {'name': ''}})
    with dashboard(folder, '--host', '0.0.0.0') as server:
        token = server.url.partition('?token=')[2]
        run = known['kept']['id']
        assert server.put(run, body)[0] == 401
        cookie = f'dreamer_watch_token={token}'
        assert server.put(run, body, cookie=cookie, origin='http://x')[0] == 403
        assert server.put(run, body, cookie=cookie)[0] == 200
    (folder / 'kept' / LABEL_FILE).unlink()


def test_a_dashboard_can_be_told_to_change_nothing(served):
    _, folder, known = served
    with dashboard(folder, '--read-only') as server:
        status, answer = server.change(known['kept']['id'], {'name': 'x'}, {'name': ''})
    assert status == 403
    assert '--read-only' in answer['message']
    assert not (folder / 'kept' / LABEL_FILE).exists()


@pytest.mark.skipif(
    os.geteuid() == 0 and not shutil.which('setpriv'),
    reason='root may write anywhere without setpriv: apt-get install util-linux',
)
def test_a_folder_that_cannot_be_written_gives_a_message(tmp_path):
    run = make_run(tmp_path / 'run', 3)
    run.chmod(0o555)
    under = () if os.geteuid() else WITHOUT_POWERS
    with dashboard(tmp_path, under=under) as server:
        known = server.wait_until(lambda known: len(known) == 1)
        status, answer = server.change(
            known['run']['id'], {'notes': 'x'}, {'notes': ''}
        )
        assert status == 403
        assert f'Cannot write {run / LABEL_FILE}: ' in answer['message']
        assert 'right to write there' in answer['message']
    assert not (run / LABEL_FILE).exists()
