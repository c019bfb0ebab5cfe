"""A second of real processes and threads, read back from the file."""

import contextlib
import itertools
import json
import math
import subprocess
import sys
import threading
import time

import pytest

from embodied.processes import timeline
from embodied.processes.timeline import DeviceTrack, Timeline, plan

MICRO = 1_000_000

# Records spans of nested work from before the second until after it.
ROLE = """
import sys, threading, time
from pathlib import Path
from embodied.processes.timeline import Timeline
folder, role = sys.argv[1:]
print('ready', flush=True)
planned = sys.stdin.readline().strip()
line = Timeline(planned, Path(folder), role)
inner = line.wrap('inner', time.sleep)
outer = line.wrap('outer', lambda: inner(0.02), lambda: {'rows': 3})
end = float(planned.split()[0]) + 1.1
while time.monotonic() < end:
    outer()
for thread in threading.enumerate():
    if thread.name == 'timeline':
        thread.join()
"""


def read(folder):
    return json.loads((folder / timeline.FILE).read_text())['traceEvents']


def spans(events):
    return [x for x in events if x['ph'] == 'X']


def names(events, kind):
    return {x['pid']: x['args']['name'] for x in events if x['name'] == kind}


def join(line):
    """Waits until the timeline is written."""
    (thread,) = [x for x in threading.enumerate() if x.name == 'timeline']
    thread.join()
    assert not line.on


def test_processes_write_one_second_of_one_clock_into_one_file(tmp_path):
    command = [sys.executable, '-c', ROLE, str(tmp_path)]
    pipes = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE, 'text': True}
    roles = 'left', 'right'
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(subprocess.Popen([*command, role], **pipes))
            for role in roles
        ]
        for process in processes:
            assert process.stdout.readline() == 'ready\n'
        planned = plan(tmp_path, 1.0)
        for process in processes:
            process.stdin.write(f'{planned}\n')
            process.stdin.close()
    assert [process.returncode for process in processes] == [0, 0]
    events = read(tmp_path)
    assert sorted(names(events, 'process_name').values()) == ['left', 'right']
    assert set(names(events, 'thread_name').values()) == {'MainThread'}
    for process in processes:
        mine = [x for x in spans(events) if x['pid'] == process.pid]
        outer = [x for x in mine if x['name'] == 'outer']
        inner = [x for x in mine if x['name'] == 'inner']
        assert len(outer) == len(inner) > 5
        assert all(x['args'] == {'rows': 3} for x in outer)
        for out, within in zip(outer, inner, strict=True):
            assert out['ts'] <= within['ts']
            assert within['ts'] + within['dur'] <= out['ts'] + out['dur']
        # From the first microsecond to the last one, without two at a time.
        assert outer[0]['ts'] == 0
        assert outer[-1]['ts'] + outer[-1]['dur'] == MICRO
        for one, other in itertools.pairwise(outer):
            assert one['ts'] + one['dur'] <= other['ts']


def test_without_a_plan_functions_stay_as_they_are(tmp_path):
    for line in (Timeline(), Timeline(plan(tmp_path, 0.0), tmp_path, 'role')):
        assert line.wrap('length', len) is len
        assert not line.on


def test_another_machine_is_not_recorded(tmp_path):
    planned = f'{time.monotonic() + 60} of-another-machine'
    assert not Timeline(planned, tmp_path, 'role').on


def test_a_role_that_is_started_too_late_says_so(tmp_path, capsys):
    boot = plan(tmp_path, 1.0).split(' ', 1)[1]
    assert not Timeline(f'{time.monotonic() - 1.5} {boot}', tmp_path, 'replay').on
    assert 'without replay, which was started after' in capsys.readouterr().out


def test_an_earlier_timeline_is_replaced(tmp_path):
    (tmp_path / timeline.FILE).write_text('of the last start')
    plan(tmp_path, 0.0)
    assert (tmp_path / timeline.FILE).exists()
    plan(tmp_path, 5.0)
    assert not (tmp_path / timeline.FILE).exists()
    assert plan(tmp_path, math.inf) == ''


def test_what_raises_is_no_span_and_no_more_are_kept_than_can_be_looked_at(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(timeline, 'MOST_SPANS', 5)
    monkeypatch.setattr(timeline, 'LATE', 0.0)
    line = Timeline(plan(tmp_path, 1e-6), tmp_path, 'role')
    with pytest.raises(StopIteration):
        line.wrap('next', next)(iter(()))
    for _ in range(9):
        line.wrap('length', len)('abc')
    join(line)
    assert [x['name'] for x in spans(read(tmp_path))] == ['length'] * 5
    assert names(read(tmp_path), 'process_name').popitem()[1] == 'role (incomplete)'


def test_a_device_does_one_thing_after_the_other(tmp_path, monkeypatch):
    """Two results that are asked for at once, as an agent does that runs ahead."""
    monkeypatch.setattr(timeline, 'LATE', 0.0)

    class Result:
        def __init__(self):
            self.ready = threading.Event()

        def block_until_ready(self):
            assert self.ready.wait(60)
            time.sleep(0.05)

    line = Timeline(plan(tmp_path, 1e-6), tmp_path, 'agent')
    track = DeviceTrack(line, 'update')
    results = [Result(), Result()]
    for result in results:
        track(result)
    for result in results:
        result.ready.set()
    join(line)
    track(results[0])  # the device goes on, and the thread ends
    track._thread.join(60)
    assert not track._thread.is_alive()
    first, second = spans(read(tmp_path))
    assert {first['name'], second['name']} == {'update'}
    assert second['ts'] >= first['ts'] + first['dur'] - 1
    assert min(first['dur'], second['dur']) >= 0.05 * MICRO - 1
