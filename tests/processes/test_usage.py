"""Memory and CPU time of real processes, compared with what they are known to use."""

import contextlib
import mmap
import os
import subprocess
import sys
import time

import psutil
import pytest

from embodied.processes import memory, usage
from embodied.processes.usage import UsageMeter
from embodied.run.parallel.actor.env_usage import EnvUsage
from embodied.run.parallel.env.worker_usage import StepTimes, WorkerUsage
from embodied.run.parallel.settings import ParallelSettings

MEGABYTES = 200
# A process that holds memory, says so, works for so many seconds of CPU time, says so.
CHILD = """
import sys, time
held = bytearray(b'x') * (int(sys.argv[1]) << 20)
print('ready', flush=True)
sys.stdin.readline()
while time.process_time() < float(sys.argv[2]):
    pass
print('done', flush=True)
sys.stdin.readline()
"""


@contextlib.contextmanager
def python(code, *args, **options):
    """A process that runs code, once it is ready."""
    command = [sys.executable, '-c', code, *map(str, args)]
    pipes = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE, 'text': True}
    with subprocess.Popen(command, **pipes, **options) as process:
        assert process.stdout.readline() == 'ready\n'
        yield process
        process.stdin.close()


def child(megabytes, seconds):
    return python(CHILD, megabytes, seconds)


def go_on(process):
    process.stdin.write('\n')
    process.stdin.flush()
    assert process.stdout.readline() == 'done\n'


@pytest.fixture
def at_any_time(monkeypatch):
    monkeypatch.setattr(usage, 'SHORTEST', 0.0)
    monkeypatch.setattr(usage, 'SHARE', 1e9)


@pytest.mark.usefixtures('at_any_time')
def test_memory_and_cpu_time_of_children_are_apart():
    meter = UsageMeter()
    alone = meter()
    with child(MEGABYTES, 1.0) as process:
        used = meter()
        begin = time.monotonic()
        go_on(process)
        working = meter()
        seconds = time.monotonic() - begin
    grown = used['children_memory_gb'] - alone['children_memory_gb']
    assert grown * 1024 == pytest.approx(MEGABYTES, abs=30)
    assert used['memory_gb'] == pytest.approx(alone['memory_gb'], rel=0.2)
    # About a second, less what it took to start, in this time.
    assert 0.5 < working['children_cpu_cores'] * seconds < 1.1
    assert working['cpu_cores'] < working['children_cpu_cores']


@pytest.mark.usefixtures('at_any_time')
def test_cpu_time_of_a_child_that_has_ended_counts_once():
    meter = UsageMeter()
    begin = time.monotonic()
    with child(1, 1.0) as process:
        meter()
        go_on(process)
    ended = meter()
    seconds = time.monotonic() - begin
    assert 0.5 < ended['children_cpu_cores'] * seconds < 1.5
    assert meter()['children_cpu_cores'] == pytest.approx(0, abs=0.5)


@pytest.mark.usefixtures('at_any_time')
def test_cpu_time_of_this_process_is_in_cores():
    meter = UsageMeter()
    begin, until = time.monotonic(), time.process_time() + 0.3
    while time.process_time() < until:
        pass
    seconds = time.monotonic() - begin
    assert meter()['cpu_cores'] == pytest.approx(0.3 / seconds, rel=0.2)


def test_nothing_is_read_too_often_or_if_it_is_off():
    assert UsageMeter()() == {}
    assert UsageMeter(on=False)() == {}


def test_readings_that_take_long_are_rare(monkeypatch):
    """0.3 s within 60 s is a share of 0.005."""
    now = [100.0]
    monkeypatch.setattr(time, 'monotonic', lambda: now[0])

    def look():
        now[0] += 0.3
        return {'gpu_memory_gb': 1.0}

    meter = UsageMeter(device_memory=look)
    read = []
    for now[0] in (101.0, 102.0, 160.0, 161.4, 162.0):
        read.append(bool(meter()))
    assert read == [True, False, False, True, False]


@pytest.mark.usefixtures('at_any_time')
def test_memory_of_a_device_is_there_only_where_one_is():
    names = set(UsageMeter()())
    assert names == {
        'memory_gb',
        'cpu_cores',
        'children_memory_gb',
        'children_cpu_cores',
    }
    assert UsageMeter(device_memory=lambda: {'gpu_memory_gb': 1.5})().keys() == {
        *names,
        'gpu_memory_gb',
    }


# Maps memory of its parent, touches all of it, says so.
SHARER = """
import mmap, sys
shared = mmap.mmap(int(sys.argv[1]), 0)
sum(shared[i] for i in range(0, len(shared), mmap.PAGESIZE))
print('ready', flush=True)
sys.stdin.readline()
"""


def test_pages_that_processes_share_are_divided_between_them():
    size = 64 << 20
    fd = os.memfd_create('shared')
    os.ftruncate(fd, size)
    with mmap.mmap(fd, size) as ours:
        ours.write(b'x' * size)
        before = memory.used_by(psutil.Process())
        with python(SHARER, fd, pass_fds=[fd]) as process:
            after = memory.used_by(psutil.Process())
            theirs = psutil.Process(process.pid)
            used, resident = memory.used_by(theirs), theirs.memory_info().rss
    os.close(fd)
    assert before - after == pytest.approx(size / 2, abs=8 << 20)
    assert resident - used == pytest.approx(size / 2, abs=12 << 20)


def test_a_process_that_is_gone_is_said_to_be():
    with child(1, 0.0) as process:
        gone = psutil.Process(process.pid)
    with pytest.raises(psutil.NoSuchProcess):
        memory.used_by(gone)


# Workers


def figures(host='a', steps=10, seconds=0.1, memory=1.0, cpu=0.5, idle=3.0, cores=16):
    return {
        'steps': steps,
        'step_seconds': seconds,
        'memory_gb': memory,
        'cpu_cores': cpu,
        'cores': cores,
        'idle_cores': idle,
        'host': host,
    }


def test_workers_are_added_up_once_per_round():
    totals = EnvUsage()
    assert totals.put(b'1', figures(idle=3.0)) == {}
    assert totals.put(b'2', figures(idle=2.0, steps=30, seconds=0.7)) == {}
    assert totals.put(b'3', figures('b', idle=7.0, steps=0, seconds=0.0)) == {}
    assert totals.put(b'1', figures(cpu=1.5)) == {
        'workers': 3,
        'memory_gb': 3.0,
        'cpu_cores': 1.5,
        'idle_cores': 2.5 + 7.0,  # each machine once
        'step_ms': pytest.approx(20.0),  # 0.8 s by 40 steps
    }


def test_cores_that_a_container_may_not_use_are_not_idle():
    totals = EnvUsage()
    container = figures(cpu=1.75, idle=50.0, cores=4)
    for worker in (b'1', b'2'):
        totals.put(worker, container)
    assert totals.put(b'1', {**container, 'cpu_cores': 2.5})['idle_cores'] == 0.5
    totals.put(b'2', {**container, 'cpu_cores': 2.5})
    assert totals.put(b'1', container)['idle_cores'] == 0.0


def test_figures_that_do_not_fit_are_not_kept():
    totals = EnvUsage()
    totals.put(b'1', figures())
    for changed in ({}, {**figures(), 'steps': 'many'}):
        with pytest.raises((KeyError, ValueError)):
            totals.put(b'2', changed)
    assert totals.put(b'1', figures())['workers'] == 1


def test_a_worker_that_is_late_counts_as_before_and_then_not_at_all():
    totals = EnvUsage()
    for worker in (b'1', b'2'):
        totals.put(worker, figures())
    counts = [totals.put(b'1', figures()).get('workers') for _ in range(4)]
    assert counts == [2, 2, 1, 1]


def test_a_worker_that_leaves_is_forgotten_at_once():
    totals = EnvUsage()
    for worker in (b'1', b'2', b'1'):
        totals.put(worker, figures())
    totals.leave(b'2')
    assert totals.put(b'1', figures())['workers'] == 1


def test_a_worker_counts_its_steps_and_reports_when_it_is_due():
    settings = {'logdir': 'x', 'batch_size': 1, 'batch_length': 1, 'log_every': -1.0}
    times = StepTimes()
    step = times.timed(lambda: time.sleep(0.1) or 'row')
    report = WorkerUsage(ParallelSettings.read(settings), times)
    assert report() == {}  # too soon
    begin = time.perf_counter()
    assert [step() for _ in range(6)] == ['row'] * 6
    most = time.perf_counter() - begin
    found = report()
    assert found['steps'] == 6
    assert 0.6 <= found['step_seconds'] <= most
    assert 0 < found['memory_gb'] < 10
    assert times.take() == (0, 0.0)
    off = ParallelSettings.read({**settings, 'usage': False})
    assert WorkerUsage(off, times)() == {}
