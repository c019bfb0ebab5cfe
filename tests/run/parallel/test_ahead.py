"""One item is taken ahead of its use, in the order of the source, and errors arrive."""

import threading

import pytest

from embodied.run.parallel.ahead import Ahead


def test_items_come_in_order_and_end():
    assert list(Ahead(iter(range(5)))) == [0, 1, 2, 3, 4]
    assert list(Ahead(iter([]))) == []


def test_one_item_is_taken_while_the_one_before_is_in_use_and_no_more():
    taken = threading.Semaphore(0)
    count = []

    def source():
        for number in range(5):
            count.append(number)
            taken.release()
            yield number

    ahead = Ahead(source())
    assert taken.acquire(timeout=20)
    assert next(ahead) == 0
    assert taken.acquire(timeout=20)  # before anybody asked for it
    assert count == [0, 1]
    assert not taken.acquire(timeout=0.1)


def test_an_error_of_the_source_reaches_who_asks_for_the_item():
    def source():
        yield 1
        raise ValueError('no more')

    ahead = Ahead(source())
    assert next(ahead) == 1
    with pytest.raises(ValueError, match='no more'):
        next(ahead)
