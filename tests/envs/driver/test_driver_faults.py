"""What goes wrong in environments and their processes is told, and nothing hangs."""

import functools
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import driver_envs
import elements
import numpy as np
import psutil
import pytest
from driver_envs import (
    BadClose,
    Counter,
    Faulty,
    Marking,
    Meeting,
    Modules,
    Unpicklable,
)
from waiting import await_end

import dreamerv3
import embodied
from dreamerv3 import factories
from embodied.core.errors import ConfigError, EnvError, SpaceError
from embodied.envs.wrappers import CheckSpaces

BOTH = pytest.mark.parametrize('parallel', [False, True], ids=['inline', 'process'])
partial = functools.partial


def stay(carry, obs):
    return carry, {'action': np.zeros(len(obs['is_first']), np.int32)}, {}


@pytest.fixture
def workers():
    """Lists the processes that the test has started, the first one first."""
    # Earlier tests may have left some, such as Python's own tracker of resources.
    children = lambda: set(psutil.Process().children(recursive=True))
    before = children()
    return lambda: sorted(children() - before, key=lambda x: x.create_time())


# Exceptions


def line_at_fault():
    lines = Path(driver_envs.__file__).read_text().splitlines()
    (number,) = (i for i, line in enumerate(lines, 1) if '# the line at fault' in line)
    return f'line {number}, in divide'


@BOTH
def test_an_exception_points_at_the_line_and_the_environment(parallel):
    driver = embodied.Driver([Counter, partial(Faulty, 'divide')], parallel)
    driver(stay, steps=2)
    with pytest.raises(EnvError) as error:
        driver(stay, steps=2)
    text = str(error.value)
    assert 'Environment 1 failed in step(): ZeroDivisionError' in text
    assert driver_envs.__file__ in text and line_at_fault() in text
    # The others stay in order: new episodes can be started.
    batches = []
    driver.on_batch(lambda trans, _: batches.append(trans))
    driver(stay, steps=2)
    assert batches[0]['is_first'].all()
    driver.close()


def refuse():
    raise ConfigError('no such board')


def stumble():
    raise ValueError('cannot begin')


@pytest.mark.parametrize(
    'make, kind, words',
    [
        (stumble, EnvError, ['Environment 1', 'make()', 'ValueError: cannot begin']),
        (refuse, ConfigError, ['no such board']),
    ],
)
@BOTH
def test_a_factory_that_fails_is_reported_and_leaves_no_process(
    workers, make, kind, words, parallel
):
    with pytest.raises(kind) as error:
        embodied.Driver([Counter, make, Counter], parallel)
    assert all(word in str(error.value) for word in words)
    assert workers() == []


def test_values_outside_of_their_space_keep_their_error_type():
    driver = embodied.Driver([lambda: CheckSpaces(Counter())])
    wrong = lambda carry, obs: (carry, {'action': np.full(1, 5000, np.int32)}, {})
    with pytest.raises(SpaceError, match=r"Environment 0 [^\n]*'action'[^\n]*5000"):
        driver(wrong, steps=2)
    driver.close()


def test_observations_that_cannot_be_sent_are_reported():
    driver = embodied.Driver([Unpicklable])
    with pytest.raises(EnvError, match=r'(?s)Environment 0 failed in step\(\).*pickle'):
        driver(stay, steps=1)
    driver.close()


# Ends of processes


@pytest.mark.parametrize(
    'fault, words',
    [
        ('kill', ['killed by signal 9', 'Killed', 'memory']),
        ('crash', ['killed by signal 11', 'Segmentation']),
        ('exit', ['exit code 3']),
        ('kill_beside_child', ['killed by signal 9']),
        ('leave', ['SystemExit: enough']),
    ],
)
def test_a_process_that_ends_is_told_again_and_again(workers, fault, words):
    driver = embodied.Driver([Counter, partial(Faulty, fault)])
    driver(stay, steps=2)
    pids = [worker.pid for worker in workers()]
    with pytest.raises(EnvError) as error:
        driver(stay, steps=2)
    assert all(word in str(error.value) for word in ['nvironment 1', *words])
    if fault != 'leave':
        with pytest.raises(EnvError, match='environment 1'):
            driver(stay, steps=2)
    driver.close()
    for pid in pids:  # also of children that the environment had started
        await_end(pid)


def test_a_worker_killed_between_steps_is_noticed(workers):
    driver = embodied.Driver([Counter, Counter])
    driver(stay, steps=2)
    (worker, _) = workers()
    worker.kill()
    with pytest.raises(EnvError, match='killed by signal 9'):
        driver(stay, steps=2)
    driver.close()
    assert workers() == []


def test_closing_ends_all_processes_and_closes_the_environments(workers, tmp_path):
    paths = [tmp_path / str(i) for i in range(3)]
    driver = embodied.Driver([partial(Marking, path) for path in paths])
    pids = [worker.pid for worker in workers()]
    assert len(pids) == 3
    driver.close()
    driver.close()
    assert all(path.exists() for path in paths)
    assert not any(psutil.pid_exists(pid) for pid in pids)
    with pytest.raises(EnvError, match='closed'):
        driver(stay, steps=1)


@BOTH
def test_an_environment_that_fails_to_close_does_not_keep_the_others(
    workers, tmp_path, parallel, capfd
):
    path = tmp_path / 'closed'
    driver = embodied.Driver([BadClose, partial(Marking, path)], parallel)
    with pytest.raises(EnvError, match=r'Environment 0 failed in close\(\)') as error:
        driver.close()
    assert 'cannot close' in str(error.value) + capfd.readouterr().err
    assert path.exists()
    assert workers() == []


def test_workers_ignore_interrupts(workers):
    driver = embodied.Driver([Counter])
    (worker,) = workers()
    worker.send_signal(signal.SIGINT)
    driver(stay, steps=3)
    driver.close()


def test_workers_outlive_the_thread_that_started_them():
    drivers = []
    thread = threading.Thread(target=lambda: drivers.append(embodied.Driver([Counter])))
    thread.start()
    thread.join()
    drivers[0](stay, steps=3)
    drivers[0].close()


SCRIPT = """
import signal
import sys

import numpy as np
import psutil

import embodied
from neighbor import make

print('main')

class Mine(type(make())):
    def __init__(self):
        super().__init__('hang')

driver = embodied.Driver([make, Mine])
hang = sys.argv[1:] == ['hang']
act = lambda carry, obs: (carry, {'action': np.zeros(2, np.int32)}, {})
driver(act, steps=2)
print(*[child.pid for child in psutil.Process().children()], flush=True)
if hang:
    driver(act, steps=2)
signal.pause()
"""
NEIGHBOR = """
from driver_envs import Faulty

def make():
    return Faulty('hang')
"""


@pytest.mark.parametrize('mode', ['idle', 'hang'])
def test_workers_die_with_their_parent(tmp_path, mode):
    """Also: the main script is not imported again, and what lies beside it works."""
    (tmp_path / 'script.py').write_text(SCRIPT)
    (tmp_path / 'neighbor.py').write_text(NEIGHBOR)
    beside = str(Path(driver_envs.__file__).parent)
    parent = subprocess.Popen(
        [sys.executable, tmp_path / 'script.py', mode],
        env={**os.environ, 'PYTHONPATH': beside},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        lines = [parent.stdout.readline().split() for _ in range(2)]
        assert lines[0] == ['main']
        pids = [int(pid) for pid in lines[1]]
        if mode == 'hang':
            lines = [parent.stdout.readline() for _ in pids]
            assert lines == ['hanging\n'] * 2
    finally:
        parent.kill()
        parent.wait()
    assert len(pids) == 2
    for pid in pids:
        await_end(pid)
    with parent.stdout as rest:
        assert rest.read() == ''


# Isolation


def make_from_dreamerv3():
    toy = {'size': 16, 'board': 8}
    config = elements.Config(task='toy_catch', seed=0, env={'toy': toy})
    assert dreamerv3.__all__
    return Modules(factories.make_env(config, 0))


def test_workers_never_load_jax():
    driver = embodied.Driver([make_from_dreamerv3])
    batches = []
    driver.on_batch(lambda trans, _: batches.append(trans))
    driver(stay, steps=2)
    driver.close()
    assert batches[-1]['log/pid'][0] != os.getpid()
    assert not batches[-1]['log/jax'][0]


@pytest.mark.timeout(60)
def test_all_environments_step_at_the_same_time(tmp_path):
    fifo = tmp_path / 'fifo'
    os.mkfifo(fifo)
    driver = embodied.Driver([partial(Meeting, fifo, reads) for reads in (True, False)])
    driver(stay, steps=6)
    driver.close()
