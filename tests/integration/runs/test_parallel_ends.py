"""Whole distributed runs with real processes: every kind of end."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import foreign
import psutil
import pytest
from combined_runs import (
    HERE,
    SECONDS,
    bind,
    check_finished,
    fixed_addresses,
    run_combined,
)

from embodied.core.checkpoint import load_part, load_part_and_step
from embodied.core.errors import DreamerError, RoleError
from embodied.logging import read_records
from embodied.processes.signals import REPEAT_KEY

pytestmark = pytest.mark.usefixtures('nothing_is_left')


@pytest.fixture
def door(tmp_path):
    """A named pipe through which processes tell that they are there."""
    path = tmp_path / 'door'
    os.mkfifo(path)
    # For writing as well: without writers, reading would not wait but end.
    with os.fdopen(os.open(path, os.O_RDWR), 'r') as file:
        yield Door(path, file.readline)


class Door(NamedTuple):
    path: Path
    await_knock: Callable[[], str]


@pytest.fixture
def start_script(door):
    """Starts run_foreign.py; what a failed test leaves behind is killed."""
    started = []

    def start(logdir, *flags):
        script = HERE / 'run_foreign.py'
        command = [sys.executable, str(script), str(logdir), str(door.path), *flags]
        started.append(subprocess.Popen(command))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def processes_of(launcher):
    return psutil.Process(launcher.pid).children(recursive=True)


def await_ends(processes):
    _, alive = psutil.wait_procs(processes, SECONDS)
    assert alive == []


def test_duration_ends_a_run(tmp_path):
    run_combined(tmp_path, steps=1e9, duration=3.0)
    ended = read_records(tmp_path / 'events.jsonl')[-1]
    assert (ended['event'], ended['reason']) == ('ended', 'run.duration')
    saved = load_part(tmp_path / 'ckpt' / 'agent', 'learner')
    assert saved['seconds'] >= 3.0


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_with_a_save_and_the_same_command_goes_on(
    tmp_path, door, start_script, number
):
    logdir = tmp_path / 'run'
    launcher = start_script(logdir, '--steps', '1e9', '--at', '20')
    door.await_knock()
    processes = processes_of(launcher)
    assert len(processes) >= 5  # agent, replay, logger and workers of both kinds
    launcher.send_signal(number)
    assert launcher.wait(SECONDS) == 0
    await_ends(processes)
    before = load_part(logdir / 'ckpt' / 'agent', 'learner')
    assert before['updates'] >= 20
    assert read_records(logdir / 'metrics.jsonl')[-1]['step'] > 0
    steps = before['steps'] + 100
    again = start_script(logdir, '--steps', str(steps))
    assert again.wait(SECONDS) == 0
    after = load_part(logdir / 'ckpt' / 'agent', 'learner')
    assert after['updates'] > before['updates']
    assert load_part_and_step(logdir / 'ckpt' / 'replay', 'replay')[1] >= steps
    numbers = [x['step'] for x in read_records(logdir / 'metrics.jsonl')]
    assert numbers == sorted(numbers)


def test_a_second_signal_ends_a_run_at_once(tmp_path, door, start_script):
    flags = ('--steps', '1e9', '--at', '20', '--wait', 'True')
    launcher = start_script(tmp_path / 'run', *flags)
    door.await_knock()
    processes = processes_of(launcher)
    launcher.send_signal(signal.SIGINT)
    door.await_knock()  # by an environment that is closed, while the agent does not end
    threading.Event().wait(REPEAT_KEY + 0.2)  # or it would be the same request
    launcher.send_signal(signal.SIGINT)
    assert launcher.wait(SECONDS) != 0
    await_ends(processes)


def test_a_signal_before_the_agent_is_made_leaves_a_fresh_start(
    tmp_path, door, start_script
):
    logdir = tmp_path / 'run'
    launcher = start_script(logdir, '--block', 'True')
    door.await_knock()
    launcher.send_signal(signal.SIGINT)
    assert launcher.wait(SECONDS) == 0
    assert not (logdir / 'ckpt' / 'agent').exists()
    assert start_script(logdir).wait(SECONDS) == 0
    check_finished(logdir)


def test_a_killed_launcher_leaves_no_process_behind(tmp_path, door, start_script):
    launcher = start_script(tmp_path / 'run', '--steps', '1e9', '--at', '20')
    door.await_knock()
    processes = processes_of(launcher)
    launcher.kill()
    launcher.wait()
    await_ends(processes)


def test_sockets_are_free_again_after_a_run(tmp_path):
    given = fixed_addresses()
    run_combined(tmp_path, **given)
    for address in given.values():
        port = int(address.rpartition(':')[2])
        assert f'@dreamer-{port}' not in Path('/proc/net/unix').read_text()
        socket.create_server(('localhost', port)).close()


def test_a_finished_run_says_so_and_goes_on_when_its_limit_is_raised(tmp_path, capfd):
    run_combined(tmp_path)
    capfd.readouterr()
    run_combined(tmp_path)
    assert f'The run in {tmp_path} is finished: 30' in capfd.readouterr().out
    run_combined(tmp_path, steps=400)
    committed = load_part_and_step(tmp_path / 'ckpt' / 'replay', 'replay')[1]
    assert 400 <= committed < 403
    assert load_part_and_step(tmp_path / 'ckpt' / 'agent', 'agent')[1] == committed


@pytest.mark.parametrize(
    ('parts', 'messages'),
    [
        (
            {'make_env': bind(foreign.Env, fails_at=30)},
            ['ValueError: the simulator fell over', 'foreign.py', 'env'],
        ),
        (
            {'make_agent': bind(foreign.Agent, 3, foreign.fail)},
            ['The agent failed: ValueError: the loss is negative'],
        ),
        ({'make_agent': foreign.fail}, ['The agent failed: ValueError']),
        (
            {'make_replay': bind(foreign.Replay, fails_at=30)},
            ['The replay failed: ValueError: the list is full', 'foreign.py'],
        ),
        (
            {'make_logger': foreign.FailingLogger},
            ['The logger failed: OSError: no space left'],
        ),
    ],
    ids=['env', 'train', 'make', 'replay', 'logger'],
)
def test_the_first_failure_ends_the_run_and_is_shown(tmp_path, parts, messages):
    with pytest.raises(DreamerError) as info:
        run_combined(tmp_path, steps=1e9, max_restarts=0, **parts)
    for message in messages:
        assert message in str(info.value)


def test_without_restarts_a_killed_role_ends_the_run(tmp_path, door):
    logdir = tmp_path / 'run'
    knock = foreign.Knock(door.path)

    def kill_agent():
        os.kill(int(door.await_knock()), signal.SIGKILL)

    thread = threading.Thread(target=kill_agent)
    thread.start()
    with pytest.raises(RoleError, match='The agent .* failed: killed by signal 9'):
        run_combined(logdir, bind(foreign.Agent, 20, knock), steps=1e9, max_restarts=0)
    thread.join()


def test_an_agent_in_a_thread_raises_its_own_error(tmp_path):
    make_agent = bind(foreign.Agent, 3, foreign.fail)
    with pytest.raises(ValueError, match='the loss is negative'):
        run_combined(tmp_path, make_agent, agent_process=False)
