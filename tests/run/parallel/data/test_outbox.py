"""The outbox: order, drops, errors and ends, over real servers and clients."""

import threading
import time

import pytest
from data_parts import DEADLINE, Worker, is_waiting

from embodied import transport
from embodied.run.parallel.outbox import Outbox
from embodied.transport import RemoteError


class Receiver:
    """A server that keeps what it gets, and may be told to hold its breath."""

    def __init__(self):
        self.addr = f'localhost:{transport.free_port()}'
        self.received = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.entered = threading.Semaphore(0)
        self.server = transport.Server(self.addr)
        self.server.bind('take', self.take)

    def take(self, item):
        self.entered.release()
        assert self.may_answer.wait(DEADLINE)
        if item == 'bad':
            raise ValueError('I do not want this.')
        self.received.append(item)


@pytest.fixture
def receiver():
    receiver = Receiver()
    with receiver.server:
        yield receiver
        receiver.may_answer.set()


@pytest.fixture
def make_outbox(receiver):
    boxes = []

    def make(limit, wait=False, patience=0.0):
        client = transport.Client(receiver.addr)
        boxes.append(Outbox(client, 'take', limit, wait, patience))
        return boxes[-1]

    yield make
    for box in boxes:
        box.close()


def test_messages_arrive_in_order(receiver, make_outbox):
    outbox = make_outbox(limit=100)
    for i in range(50):
        outbox.put(i)
    assert outbox.flush(DEADLINE)
    assert receiver.received == list(range(50)) and outbox.dropped == 0


def test_a_slow_server_blocks_no_sender_and_costs_the_oldest(receiver, make_outbox):
    receiver.may_answer.clear()
    outbox = make_outbox(limit=3)
    outbox.put(0)
    assert receiver.entered.acquire(timeout=DEADLINE)  # on its way
    for i in range(1, 10):
        outbox.put(i)
    assert outbox.dropped == 6
    assert not outbox.flush(timeout=0.01)
    receiver.may_answer.set()
    assert outbox.flush(DEADLINE)
    assert receiver.received == [0, 7, 8, 9]


def fill(receiver, outbox, limit):
    """One message on its way and as many as may wait."""
    receiver.may_answer.clear()
    assert outbox.put(0)
    assert receiver.entered.acquire(timeout=DEADLINE)
    for i in range(1, limit + 1):
        assert outbox.put(i)


def test_a_slow_server_is_waited_for_and_costs_nothing(receiver, make_outbox):
    outbox = make_outbox(limit=3, patience=DEADLINE)
    fill(receiver, outbox, 3)
    putting = Worker(outbox.put, 4)
    assert is_waiting(putting)
    receiver.may_answer.set()
    assert putting.join() is True
    assert outbox.flush(DEADLINE)
    assert receiver.received == list(range(5)) and outbox.dropped == 0


def test_a_server_that_does_not_answer_is_waited_for_once(receiver, make_outbox):
    outbox = make_outbox(limit=3, patience=0.5)
    fill(receiver, outbox, 3)
    begin = time.monotonic()
    assert [outbox.put(i) for i in range(4, 104)] == [False] * 100
    assert 0.5 <= time.monotonic() - begin < 100 * 0.5
    assert outbox.dropped == 100
    receiver.may_answer.set()
    assert outbox.flush(DEADLINE)
    assert receiver.received == [0, 101, 102, 103]
    # It has answered: from now on it is waited for again.
    receiver.entered = threading.Semaphore(0)
    fill(receiver, outbox, 3)
    begin = time.monotonic()
    assert not outbox.put(4) and time.monotonic() - begin >= 0.5


def test_a_wait_for_room_can_be_cut_short(receiver, make_outbox):
    outbox = make_outbox(limit=1, patience=10 * DEADLINE)
    fill(receiver, outbox, 1)
    putting = Worker(outbox.put, 2)
    assert is_waiting(putting)
    outbox.stop_waiting()
    assert putting.join() is False
    assert outbox.put(3) is False and outbox.dropped == 2


def test_waiting_drops_nothing(receiver, make_outbox):
    outbox = make_outbox(limit=1, wait=True)
    receiver.may_answer.clear()
    putting = Worker(outbox.put, 1)
    assert receiver.entered.acquire(timeout=DEADLINE)
    assert putting.is_alive() and receiver.received == []
    receiver.may_answer.set()
    putting.join()
    assert receiver.received == [1] and outbox.dropped == 0


@pytest.mark.parametrize(
    ('bad', 'error'),
    [('bad', RemoteError), (object(), transport.MessageError)],
    ids=['by the server', 'by the client'],
)
def test_what_goes_wrong_is_raised_by_the_next_send(make_outbox, bad, error):
    outbox = make_outbox(limit=5)
    outbox.put(bad)
    with pytest.raises(error):
        outbox.flush(DEADLINE)
    with pytest.raises(error):
        outbox.put(1)


def test_closing_does_not_wait_for_answers():
    client = transport.Client(f'localhost:{transport.free_port()}')
    outbox = Outbox(client, 'take', limit=2)
    outbox.put(1)
    outbox.put(2)
    Worker(outbox.close).join()
