"""Clocks of replicas in processes of their own, one of which is slow."""

import concurrent.futures
import contextlib
import json
import pathlib
import subprocess
import sys
import threading

import pytest

from embodied import GlobalClock, clock
from embodied.clock.replica_clocks import Meeting, Question, ReplicaClocks
from embodied.core.errors import ConfigError, RoleError
from embodied.transport import Refused, free_port, keys

SCRIPT = pathlib.Path(__file__).with_name('clock_replica.py')
ALWAYS, NEVER, LONG = '-1', '0', '1000'


class Replica:
    """A process that makes one call of each of its clocks when it is told to."""

    def __init__(self, index, replicas, port, skips, every):
        command = [sys.executable, SCRIPT, index, replicas, port, skips, *every]
        self.process = subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self):
        self.process.stdin.write('go\n')
        self.process.stdin.flush()

    def answer(self):
        return json.loads(self.process.stdout.readline())


@contextlib.contextmanager
def replicas(skips, every):
    """One per text of skips; `every` holds the clocks of each."""
    port = free_port()
    found = [
        Replica(i, len(skips), port, *own)
        for i, own in enumerate(zip(skips, every, strict=True))
    ]
    try:
        yield found
    finally:
        for replica in found:
            replica.process.kill()
            replica.process.communicate()


def test_three_processes_get_one_answer_and_wait_for_the_slow_one():
    skips = '00000', '00000', '01010'
    clocks = (ALWAYS, NEVER, LONG)
    with replicas(skips, [clocks] * 3) as found:
        assert [x.answer() for x in found] == ['ready'] * 3
        *fast, slow = found
        for replica in fast:
            for _ in range(5):
                replica.tell()
        seen = []
        for _ in range(5):
            slow.tell()
            answers = [replica.answer() for replica in found]
            assert answers[0] == answers[1] == answers[2]
            seen.append(answers[0])
    # The first call of the last clock is due; the second and fourth are vetoed.
    assert seen == [
        [True, False, True],
        [False, False, False],
        [True, False, False],
        [False, False, False],
        [True, False, False],
    ]


def test_replicas_with_different_clocks_are_told():
    with replicas(('0', '0'), [(ALWAYS,), (LONG,)]) as found:
        for replica in found:
            assert replica.answer() == 'ready'
            replica.tell()
        for replica in found:
            answer = replica.answer()
            assert 'ask for different clocks (0: call 1 of clock 1 (every -1' in answer
            assert 'Start all replicas again' in answer


@pytest.fixture
def meeting():
    return Meeting(replicas=2, patience=60)


def test_a_replica_that_was_started_again_is_an_error_of_all(meeting):
    late = Question(1, 1, -1.0, False)
    thread = threading.Thread(target=lambda: pytest.raises(RoleError, ask, 0, 7))

    def ask(replica, call):
        return meeting.ask(replica, list(late._replace(call=call)), False)

    thread.start()
    with pytest.raises(RoleError, match='call 7 of clock 1.*call 1 of clock 1'):
        ask(1, 1)
    thread.join()


def test_a_replica_that_asks_nothing_is_named():
    meeting = Meeting(replicas=2, patience=0.05)
    with pytest.raises(RoleError, match='Replica 1 has not asked for'):
        meeting.ask(0, [1, 1, -1.0, False], False)
    with pytest.raises(RoleError, match='Replica 1 has not asked for'):
        meeting.ask(1, [1, 1, -1.0, False], False)


def test_a_network_needs_the_keys_of_the_run(tmp_path):
    addr = f'0.0.0.0:{free_port()}'
    with pytest.raises(ConfigError, match='No keys in'):
        ReplicaClocks(0, 2, addr, tmp_path)
    keys.create(tmp_path / 'keys')
    with contextlib.ExitStack() as stack:
        clocks = [ReplicaClocks(i, 2, addr, tmp_path / 'keys') for i in range(2)]
        for replica in clocks:
            stack.callback(replica.close)
        clocks[0].serve()
        for replica in clocks:
            replica.connect()
        with concurrent.futures.ThreadPoolExecutor() as threads:
            due = [threads.submit(x.make(-1, False), skip=False) for x in clocks]
            assert [x.result() for x in due] == [True, True]


def test_another_number_of_replicas_is_refused():
    addr = f'localhost:{free_port()}'
    with contextlib.ExitStack() as stack:
        clocks = [ReplicaClocks(0, 2, addr), ReplicaClocks(1, 3, addr)]
        for replica in clocks:
            stack.callback(replica.close)
        clocks[0].serve()
        with pytest.raises(Refused, match='replicas: server has 2, client has 3'):
            clocks[1].connect()


def test_one_replica_needs_no_server():
    clock.setup(is_server=True, replica=0, replicas=1, port='', addr='')
    assert GlobalClock(10, first=True)()


def test_a_replica_beyond_the_last_one_is_refused():
    with pytest.raises(ConfigError, match='replica=3 must be between 0 and 2'):
        clock.setup(False, 3, 3, 7000, 'localhost:7000')
