"""Status of a run: readers are never told that the dead are alive."""

import json
import os
import shutil
import subprocess
import sys
import time

import pytest

from dreamerv3.main import main
from embodied.core.errors import ConfigError
from embodied.processes import lineage
from embodied.processes.process_identity import ProcessIdentity
from embodied.run.parallel.supervision.status import Status, StatusFile
from embodied.run.parallel.supervision.takeover import take_over

ROLE = {'state': 'running', 'activity': '', 'pid': 5, 'restarts': 1, 'error': 'burnt'}


def write(folder, state='running', /, **changes):
    """The status that this process writes, with changes made to the file."""
    folder.mkdir(exist_ok=True)
    StatusFile(folder, epoch=3).write(state, {'agent': ROLE})
    path = folder / 'status.json'
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def dead_pid():
    process = subprocess.Popen([sys.executable, '-c', ''])
    process.wait()
    return process.pid


@pytest.mark.parametrize(
    ('written', 'changes', 'state'),
    [
        ('running', {}, 'running'),
        ('running', {'pid': 'dead'}, 'dead'),
        ('running', {'started': 1.0}, 'dead'),  # another process with its number
        ('running', {'boot': 'earlier'}, 'dead'),
        ('running', {'uptime': 0.0}, 'silent'),
        ('running', {'heartbeat': 0.0}, 'running'),  # The clock has jumped.
        ('done', {'pid': 'dead'}, 'done'),  # as version 0.1.0 wrote it
        ('finished', {'pid': 'dead'}, 'finished'),
        ('stopped', {'pid': 'dead'}, 'stopped'),
        ('killed', {'pid': 'dead'}, 'killed'),
        ('failed', {'uptime': 0.0}, 'failed'),
        ('running', {'host': 'elsewhere'}, 'running'),
        ('running', {'host': 'elsewhere', 'heartbeat': 0.0}, 'unknown'),
    ],
)
def test_the_state_is_what_can_be_believed(tmp_path, written, changes, state):
    if changes.get('pid') == 'dead':
        changes = {'pid': dead_pid()}
    write(tmp_path, written, **changes)
    assert Status.read(tmp_path).state == state


def test_the_command_prints_state_and_roles(tmp_path, capsys):
    write(tmp_path)
    assert main(['status', str(tmp_path)]) == 0
    first, launcher, role = capsys.readouterr().out.splitlines()
    assert first == 'running'
    assert launcher.startswith(f'launcher: process {os.getpid()} on ')
    assert role == '  agent      running, 1 restarts, process 5, last error: burnt'


@pytest.mark.parametrize(
    ('doing', 'line'),
    [
        ({'doing': 'compiling train for 34 s'}, 'running (compiling train for 34 s), '),
        ({'doing': ''}, 'running (compiling), '),
        ({}, 'running (compiling), '),  # as version 0.1.0 wrote it
    ],
)
def test_the_command_says_what_takes_a_role_long(tmp_path, capsys, doing, line):
    write(tmp_path, roles={'agent': {**ROLE, 'activity': 'compiling', **doing}})
    assert main(['status', str(tmp_path)]) == 0
    assert line in capsys.readouterr().out


def test_the_command_says_why_a_run_has_ended(tmp_path, capsys):
    write(tmp_path, 'stopped', reason='SIGTERM')
    assert main(['status', str(tmp_path)]) == 0
    first, *_ = capsys.readouterr().out.splitlines()
    assert first == 'stopped (SIGTERM)'


def test_a_status_without_a_reason_can_be_read(tmp_path, capsys):
    """As version 0.1.0 wrote it."""
    write(tmp_path, 'done')
    path = tmp_path / 'status.json'
    record = json.loads(path.read_text())
    del record['reason']
    path.write_text(json.dumps(record))
    assert main(['status', str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == 'done'


def test_the_roles_of_a_dead_launcher_are_gone(tmp_path, capsys):
    write(tmp_path, pid=dead_pid())
    assert main(['status', str(tmp_path)]) == 0
    first, _, role = capsys.readouterr().out.splitlines()
    assert first.startswith('dead: its launcher was killed')
    assert role == '  agent      gone, 1 restarts, last error: burnt'


def test_folders_without_a_status_are_refused(tmp_path, capsys):
    assert main(['status', str(tmp_path)]) == 2
    assert 'give the --logdir of a distributed run' in capsys.readouterr().err


# Taking over


def start_tagged(tag):
    """A process that never ends, as an earlier session may leave it behind."""
    code = 'import threading; print(1, flush=True); threading.Event().wait()'
    process = subprocess.Popen(
        [sys.executable, '-c', code],
        env={**os.environ, lineage.TAG: tag},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    process.stdout.read(1)
    return process


def test_what_an_earlier_session_left_behind_is_ended(tmp_path):
    left, other = start_tagged('run1.agent.0.'), start_tagged('run2.agent.0.')
    try:
        write(tmp_path, pid=dead_pid(), lineage='run1')
        take_over(tmp_path)
        assert left.wait(10) == -9
        assert other.poll() is None
    finally:
        for process in (left, other):
            process.kill()
            process.wait()
            process.stdout.close()


@pytest.fixture
def left():
    """What an earlier session with the tag `run1` has left behind."""
    process = start_tagged('run1.agent.0.')
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_copy_of_a_folder_leaves_the_processes_of_the_original_alone(tmp_path, left):
    write(tmp_path / 'one', pid=dead_pid(), lineage='run1')
    shutil.copytree(tmp_path / 'one', tmp_path / 'two')
    events = []
    take_over(tmp_path / 'two', lambda event, **details: events.append(event))
    assert events == ['copied']
    assert left.poll() is None
    take_over(tmp_path / 'one')
    assert left.wait(10) == -9


def test_a_folder_that_was_moved_is_still_the_same(tmp_path, left):
    write(tmp_path / 'one', pid=dead_pid(), lineage='run1')
    (tmp_path / 'one').rename(tmp_path / 'two')
    take_over(tmp_path / 'two')
    assert left.wait(10) == -9


def test_the_processes_of_a_living_launcher_are_left_alone(tmp_path, left):
    launcher = start_tagged('run2')
    try:
        identity = ProcessIdentity.of(launcher.pid)._asdict()
        write(tmp_path, **identity, lineage='run1')
        with pytest.raises(ConfigError, match=f'in use by process {launcher.pid}'):
            take_over(tmp_path)
        write(tmp_path, 'done', **identity, lineage='run1')
        take_over(tmp_path)
        assert left.poll() is None
    finally:
        launcher.kill()
        launcher.communicate()


@pytest.mark.parametrize('lineage', ['r', 'run', '', 3])
def test_a_mark_that_was_damaged_stands_for_nothing(tmp_path, left, lineage):
    write(tmp_path, pid=dead_pid(), lineage=lineage)
    take_over(tmp_path)
    assert left.poll() is None


def test_a_status_that_names_no_folder_is_believed_nothing(tmp_path, left):
    """Version 0.1.0 has written it, here or in the folder that this is a copy of."""
    write(tmp_path, pid=dead_pid(), lineage='run1', folder=None)
    take_over(tmp_path)
    assert left.poll() is None


@pytest.mark.parametrize(
    'content',
    [b'', b'{', b'[]', b'3', b'\xff\x00', b'{"state": "running"}', b'{"roles": 1}'],
)
def test_a_status_that_cannot_be_read_is_set_aside(tmp_path, content, capsys):
    write(tmp_path)
    (tmp_path / 'status.json').write_bytes(content)
    with pytest.raises(ConfigError, match=r'status\.json cannot be read'):
        Status.read(tmp_path)
    events = []
    take_over(tmp_path, lambda event, **details: events.append((event, details)))
    assert not Status.exists(tmp_path)
    assert (tmp_path / 'status.json.bad').read_bytes() == content
    ((event, details),) = events
    assert (event, details['kept']) == ('damaged', 'status.json.bad')
    assert str(tmp_path / 'status.json') in capsys.readouterr().err


def test_the_bytes_of_a_status_that_cannot_be_read_are_not_shown(tmp_path):
    (tmp_path / 'status.json').write_bytes(b'\xff' * 10_000)
    with pytest.raises(ConfigError, match='UnicodeDecodeError') as error:
        Status.read(tmp_path)
    assert len(str(error.value)) < 500


def test_a_status_with_foreign_values_is_set_aside(tmp_path):
    for name, value in (('pid', 'x'), ('uptime', None), ('roles', []), ('started', {})):
        write(tmp_path, **{name: value})
        take_over(tmp_path)
        assert not Status.exists(tmp_path), name


@pytest.mark.parametrize(
    ('changes', 'refused'),
    [
        ({}, True),
        ({'heartbeat': 0.0}, False),
        ({'state': 'done'}, False),
        ({'state': 'stopped'}, False),
    ],
)
def test_a_run_that_goes_on_on_another_machine_is_not_taken_over(
    tmp_path, changes, refused
):
    write(tmp_path, host='elsewhere', **changes)
    if not refused:
        take_over(tmp_path)
        return
    with pytest.raises(ConfigError, match='in use by process .* on elsewhere'):
        take_over(tmp_path)


def test_a_fresh_folder_is_taken_over_as_it_is(tmp_path):
    take_over(tmp_path)


def test_identities_tell_processes_apart():
    assert ProcessIdentity.of().alive
    assert not ProcessIdentity.of()._replace(started=1.0).alive
    assert ProcessIdentity.of()._replace(host='elsewhere').alive is None
    with pytest.raises(ProcessLookupError):
        ProcessIdentity.of(dead_pid())


HOSTILE = 'x\x1b]0;owned\x07\x1b[2J\n\u202efake\x9b31m\u2028'


def test_texts_of_a_status_cannot_steer_the_terminal(tmp_path, capsys):
    role = {**ROLE, **dict.fromkeys(('state', 'activity', 'error', 'node'), HOSTILE)}
    changes = dict.fromkeys(('state', 'activity', 'host', 'error'), HOSTILE)
    write(tmp_path, **changes, roles={HOSTILE: role}, heartbeat=time.time())
    assert main(['status', str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert set(out) - {'\n'} <= set(map(chr, range(32, 127)))
    assert '\\x1b]0;owned\\x07' in out and '\\u202efake' in out
    # Only errors have several lines.
    assert len(out.splitlines()) == 2 + 2 + 3


def make_fifo(path):
    os.mkfifo(path)


def make_endless(path):
    path.symlink_to('/dev/zero')


def make_huge(path):
    with path.open('wb') as file:
        file.truncate(2**40)


def make_deep(path):
    path.write_text('[' * 100_000)


def make_senseless(path):
    path.write_text('{"state": ["running"], "roles": {"a": 3}}')


def make_list(path):
    path.write_text('[]')


@pytest.mark.parametrize(
    'make', [make_fifo, make_endless, make_huge, make_deep, make_senseless, make_list]
)
def test_what_is_no_status_is_refused_at_once(tmp_path, make):
    make(tmp_path / 'status.json')
    command = [sys.executable, '-m', 'dreamerv3', 'status', str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith('dreamer: ') and 'status.json' in done.stderr
    assert 'Traceback' not in done.stderr


def test_errors_cannot_steer_the_terminal(tmp_path, capsys):
    (tmp_path / HOSTILE.replace('/', '')).mkdir()
    assert main(['status', str(tmp_path / HOSTILE)]) == 2
    assert '\x1b' not in capsys.readouterr().err
