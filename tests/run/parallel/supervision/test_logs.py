"""Logs of roles: their size is bounded, and last words are in them."""

import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import asked_roles
import log_roles as roles
import pytest
from asked_roles import Settings

from embodied.core.errors import RoleError
from embodied.run.parallel.engines.ray.keeper import Keeper
from embodied.run.parallel.supervision.process import ENDED, RoleSpec
from embodied.run.parallel.supervision.role_logs import MAX_BYTES, Incomplete, LogWriter
from embodied.run.parallel.supervision.supervisor import Supervisor

pytestmark = pytest.mark.usefixtures('nothing_is_left')

SECONDS = 30  # until something that should happen counts as missing
MUCH = 3 * MAX_BYTES


def sizes(folder):
    return {path.name: path.stat().st_size for path in folder.iterdir()}


@pytest.mark.parametrize('kind', ['python', 'descriptor', 'program'])
def test_a_role_that_prints_much_leaves_a_bounded_log(tmp_path, kind):
    with Supervisor(Settings(tmp_path)) as supervisor:
        supervisor.start('env0', roles.print_much, kind, MUCH)
        supervisor.wait()
    found = sizes(tmp_path / 'logs')
    assert set(found) == {'env0.log', 'env0.log.1'}
    assert max(found.values()) <= MAX_BYTES
    assert sum(found.values()) > MAX_BYTES
    assert (tmp_path / 'logs' / 'env0.log').read_bytes().endswith(b'the end\n')


def test_a_log_is_bounded_while_its_role_prints(tmp_path):
    """Not only once per heartbeat, and whatever the file held before."""
    path = tmp_path / 'env0.log'
    path.write_bytes(b'x' * 900)
    writer = LogWriter(path, b'first words\n', max_bytes=1000)
    code = 'import os\nfor i in range(100): os.write(2, b"%99d\\n" % i)'
    with subprocess.Popen([sys.executable, '-c', code], stderr=writer) as process:
        writer.start()
    writer.close(SECONDS)
    assert process.returncode == 0
    assert max(sizes(tmp_path).values()) <= 1000
    old, new = (tmp_path / 'env0.log.1').read_text(), path.read_text()
    # Nothing is lost at the moment of the change.
    numbers = [int(line) for line in (old + new).splitlines()]
    assert numbers == list(range(numbers[0], 100))


@pytest.mark.parametrize('kind', ['abort', 'kill', 'raise', 'exit'])
def test_the_last_words_of_a_role_are_in_its_log(tmp_path, kind):
    with pytest.raises(RoleError) as info, Supervisor(Settings(tmp_path)) as supervisor:
        supervisor.start('env0', roles.print_and_die, kind)
        supervisor.wait()
    text = (tmp_path / 'logs' / 'env0.log').read_text()
    assert '199999\n' in text
    assert 'a word of C\n' in text
    if kind == 'abort':
        assert 'Fatal Python error: Aborted' in text and 'in print_and_die' in text
    elif kind == 'raise':
        assert 'ValueError: burnt' in text
    else:
        assert str(info.value).endswith('a word of C')


def test_all_lives_of_a_role_are_in_one_log(tmp_path):
    with Supervisor(Settings(tmp_path, max_restarts=1)) as supervisor:
        supervisor.start('env0', roles.die_once, tmp_path)
        supervisor.wait()
    text = (tmp_path / 'logs' / 'env0.log').read_text()
    assert text.count('The role starts') == 2
    assert text.index('life 1') < text.index('life 2')


def test_the_errors_of_a_role_whose_output_is_shown_are_in_its_log(tmp_path, capfd):
    with Supervisor(Settings(tmp_path)) as supervisor:
        supervisor.start('logger', roles.print_both, shown=True)
        supervisor.wait()
    assert capfd.readouterr().out == 'for the user\n'
    text = (tmp_path / 'logs' / 'logger.log').read_text()
    assert text.splitlines()[1:] == ['for the log']


def test_a_full_disk_does_not_hold_up_a_role(tmp_path, caplog):
    writer = LogWriter(Path('/dev/full'))
    code = 'import os\nfor _ in range(100): os.write(2, bytes(10**5))'
    with subprocess.Popen([sys.executable, '-c', code], stderr=writer) as process:
        writer.start()
        assert process.wait(SECONDS) == 0
    writer.close(SECONDS)
    assert [x.levelname for x in caplog.records] == ['WARNING']
    assert 'No space left' in caplog.text


def test_a_program_that_holds_the_pipe_does_not_hold_up_the_end(tmp_path):
    code = 'import threading; print(1, flush=True); threading.Event().wait()'
    writer = LogWriter(tmp_path / 'env0.log')
    with subprocess.Popen(
        [sys.executable, '-c', code], stdout=subprocess.PIPE, stderr=writer
    ) as process:
        writer.start()
        process.stdout.read(1)
        writer.close(0.1)
        process.kill()


def test_a_role_goes_on_after_its_launcher_was_suspended(tmp_path):
    door = asked_roles.Door(tmp_path)
    command = [sys.executable, roles.__file__, str(tmp_path), str(door.path)]
    with subprocess.Popen(command) as launcher:
        door.await_pid()
        launcher.send_signal(signal.SIGSTOP)
        (tmp_path / 'go').write_text('')  # the role prints more than the pipe holds
        threading.Event().wait(0.5)
        launcher.send_signal(signal.SIGCONT)
        assert launcher.wait(SECONDS) == 0
    door.close()
    assert (tmp_path / 'logs' / 'env0.log').read_text().endswith('the end\n')


@pytest.mark.parametrize('shown', [False, True])
def test_a_role_on_another_node_leaves_a_bounded_log_as_well(tmp_path, shown):
    keeper = Keeper()
    spec = RoleSpec.of(roles.print_much, ('stderr', MUCH))
    log = tmp_path / 'logs' / 'env0.log'
    keeper.start('env0', spec, log, os.urandom(8).hex(), shown, None)
    while ENDED not in keeper.listen(SECONDS).events:
        pass
    assert keeper.collect() is None
    assert max(sizes(log.parent).values()) <= MAX_BYTES
    assert log.read_bytes().endswith(b'the end\n')


@pytest.mark.parametrize('recovered, notes', [(60.0, 1), (0.0, 2)])
def test_a_full_disk_is_reported_again_after_a_while_only(caplog, recovered, notes):
    incomplete = Incomplete(recovered)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    for error in (full, None, full):
        with incomplete.outlasting(Path('status.json')):
            if error:
                raise error
    assert caplog.text.count('Cannot write to status.json: No space left') == notes
