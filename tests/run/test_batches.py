"""Batches through an agent: nothing is lost or repeated between two saves."""

import itertools
import queue
import threading

import pytest
from run_parts import look_ahead

import embodied
from embodied.run.shared.batches import Batches
from embodied.streams import Map, Stateless


class Agent(embodied.Agent):
    def __init__(self, stream):
        self.stream = stream


class Counter(embodied.Stream):
    """Numbers that go on where they were saved."""

    def __init__(self):
        self.value = 0

    def __next__(self):
        self.value += 1
        return self.value

    def save(self):
        return self.value

    def load(self, data):
        self.value = data


def in_a_thread(source):
    """Fetches as far ahead as a queue of three allows."""
    ready = queue.Queue(3)

    def work():
        for item in source:
            ready.put(item)

    threading.Thread(target=work, daemon=True).start()
    while True:
        yield ready.get()


STREAMS = {
    'the argument itself': lambda source: source,
    'a generator': lambda source: (x for x in source),
    'two ahead': lambda source: look_ahead(source, 2),
    'a thread': in_a_thread,
}


@pytest.mark.parametrize('stream', STREAMS.values(), ids=STREAMS.keys())
@pytest.mark.parametrize('used', [0, 1, 5])
@pytest.mark.parametrize('between', [0, 1])
def test_a_loaded_stream_goes_on_with_the_next_batch(stream, used, between):
    batches = Batches(Agent(stream), Counter())
    assert list(itertools.islice(batches, used)) == list(range(1, used + 1))
    for _ in range(between):  # saved, loaded and saved again without being used
        data = batches.save()
        batches = Batches(Agent(stream), Counter())
        batches.load(data)
    resumed = Batches(Agent(stream), Counter())
    resumed.load(batches.save())
    assert list(itertools.islice(resumed, 5)) == list(range(used + 1, used + 6))


def test_sources_without_a_position_work():
    numbers = iter(range(100))
    batches = Batches(Agent(STREAMS['two ahead']), Stateless(lambda: next(numbers)))
    assert next(batches) == 0
    resumed = Batches(Agent(STREAMS['two ahead']), Stateless(lambda: next(numbers)))
    resumed.load(batches.save())
    assert [next(resumed) for _ in range(4)] == [1, 2, 3, 4]


def test_the_source_is_left_alone_until_the_first_batch():
    touched = []
    source = Map(Counter(), lambda x: touched.append(x) or x)
    batches = Batches(Agent(STREAMS['a thread']), source)
    batches.save()
    assert touched == []


def test_errors_of_the_source_reach_the_caller():
    def fail():
        raise ValueError('no batch')

    batches = Batches(Agent(STREAMS['the argument itself']), Stateless(fail))
    with pytest.raises(ValueError, match='no batch'):
        next(batches)
