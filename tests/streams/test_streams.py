"""Streams: what they yield, and that they continue exactly after save and load."""

import threading

import numpy as np
import pytest

from embodied import streams
from embodied.core import base
from embodied.core.errors import ConfigError, ReplayError


class Counter(base.Stream):
    """Batches [2, steps] that count up, with a latent of two context steps."""

    def __init__(self, steps=11, stop=None, latent=False):
        self.steps, self.stop, self.latent, self.n = steps, stop, latent, 0

    def __next__(self):
        if self.n == self.stop:
            raise StopIteration
        start = 1000 * self.n + np.array([[0], [100]])
        self.n += 1
        batch = {
            'x': start + np.arange(self.steps),
            'is_first': np.zeros((2, 11), bool),
        }
        batch['is_first'] = batch['is_first'][:, : self.steps]
        if self.latent:
            batch['dyn/deter'] = np.ones((2, 2, 4), np.float32)
        return batch

    def save(self):
        return self.n

    def load(self, data):
        self.n = data


def test_stateless_calls_the_function_with_its_arguments():
    stream = streams.Stateless(lambda a, b: a + b, 1, b=2)
    assert next(iter(stream)) == 3
    assert stream.save() is None


def test_stateless_takes_a_plain_iterator():
    assert next(streams.Stateless(iter([7, 8]))) == 7


def test_consec_cuts_overlapping_chunks():
    stream = streams.Consec(Counter(11), length=3, consec=3, prefix=2)
    chunks = [next(stream) for _ in range(4)]
    starts = [(chunk['x'][0, 0], chunk['x'][1, -1]) for chunk in chunks]
    assert starts == [(0, 104), (3, 107), (6, 110), (1000, 1104)]
    for chunk, number in zip(chunks, (0, 1, 2, 0), strict=True):
        assert chunk['consec'].dtype == np.int32
        assert chunk['consec'].tolist() == [[number] * 5] * 2


def test_consec_passes_context_latents_with_the_first_chunk_only():
    stream = streams.Consec(Counter(11, latent=True), 3, 3, 2)
    sums = [next(stream)['dyn/deter'].sum() for _ in range(3)]
    assert sums == [16, 0, 0]


@pytest.mark.parametrize('contiguous', [True, False])
def test_consec_makes_chunks_contiguous_on_request(contiguous):
    chunk = next(streams.Consec(Counter(11), 3, 3, 2, contiguous=contiguous))
    assert chunk['x'].flags['C_CONTIGUOUS'] == contiguous


@pytest.mark.parametrize(
    'steps, strict, fits',
    [(11, True, True), (12, True, False), (12, False, True), (10, False, False)],
)
def test_consec_checks_the_length_of_sequences(steps, strict, fits):
    stream = streams.Consec(Counter(steps), 3, 3, 2, strict=strict)
    if fits:
        assert next(stream)['x'].shape == (2, 5)
    else:
        with pytest.raises(ReplayError, match='sequences of 11 steps'):
            next(stream)


def test_consec_refuses_an_empty_chunk():
    with pytest.raises(ConfigError, match='length=0'):
        streams.Consec(Counter(), 0, 1)


def test_zip_joins_along_the_batch():
    stream = streams.Zip([Counter(), Counter()])
    assert next(stream)['x'][:, 0].tolist() == [0, 100, 0, 100]


def test_mixer_follows_its_weights_and_seed():
    def draws(seed):
        sources = {
            'a': streams.Stateless(lambda: 'a'),
            'b': streams.Stateless(lambda: 'b'),
        }
        mixer = streams.Mixer(sources, {'a': 3.0, 'b': 1.0}, seed)
        return ''.join(next(mixer) for _ in range(400))

    assert draws(0) == draws(0) != draws(1)
    assert 260 < draws(0).count('a') < 340


def test_mixer_refuses_sources_without_weights():
    with pytest.raises(ConfigError, match='needs one weight'):
        streams.Mixer({'a': Counter()}, {'b': 1.0})


def test_prefetch_reads_ahead_no_further_than_its_amount():
    source = Counter()
    stream = streams.Prefetch(source, lambda batch: batch['x'][0, 0], amount=3)
    assert [next(stream) for _ in range(5)] == [0, 1000, 2000, 3000, 4000]
    stream.close()
    assert source.n <= 5 + 3


def test_prefetch_hands_errors_to_the_consumer_after_the_items_before_them():
    def boom(batch):
        if batch['x'][0, 0] == 2000:
            raise ValueError('bad batch')
        return batch

    stream = streams.Prefetch(Counter(), boom, amount=4)
    next(stream), next(stream)
    for _ in range(2):
        with pytest.raises(ValueError, match='bad batch'):
            next(stream)


def test_prefetch_ends_with_its_source():
    assert len(list(streams.Prefetch(Counter(stop=3), amount=2))) == 3


def test_prefetch_saves_without_waiting_for_its_source():
    gate = threading.Event()

    def slow():
        gate.wait()
        return 1

    stream = streams.Prefetch(streams.Stateless(slow))
    stream._start()
    assert stream.save()['ahead'] == []
    gate.set()
    assert next(stream) == 1


def test_prefetch_over_a_function_gives_again_what_was_read_ahead():
    numbers = iter(range(100))
    stream = streams.Prefetch(streams.Stateless(numbers), lambda x: -x, amount=3)
    assert [next(stream) for _ in range(2)] == [0, -1]
    with stream._change:
        stream._change.wait_for(lambda: len(stream._ready) == 3)
    saved = stream.save()
    stream.close()
    again = streams.Prefetch(
        streams.Stateless(iter(range(5, 100))), lambda x: -x, amount=3
    )
    again.load(saved)
    assert [next(again) for _ in range(6)] == [-2, -3, -4, -5, -6, -7]


STREAMS = {
    'consec': lambda: streams.Consec(Counter(11, latent=True), 3, 3, 2),
    'prefetch': lambda: streams.Prefetch(
        streams.Consec(Counter(11), 3, 3, 2), amount=2
    ),
    'zip': lambda: streams.Zip(
        [streams.Consec(Counter(11), 3, 3, 2), streams.Consec(Counter(5), 3, 1, 2)]
    ),
    'map': lambda: streams.Map(streams.Consec(Counter(11), 3, 3, 2), dict),
    'mixer': lambda: streams.Mixer(
        {'a': streams.Consec(Counter(11), 3, 3, 2), 'b': Counter(7)}, {'a': 2, 'b': 1}
    ),
}


@pytest.mark.parametrize('name', STREAMS)
@pytest.mark.parametrize('taken', [0, 1, 2, 3, 7])
@pytest.mark.parametrize('started', [False, True])
def test_streams_continue_in_the_middle_of_a_sequence(name, taken, started):
    stream, again = STREAMS[name](), STREAMS[name]()
    for _ in range(taken):
        next(stream)
    if started:
        next(again)
    saved = stream.save()
    expected = [next(stream) for _ in range(7)]
    again.load(saved)
    for batch in expected:
        other = next(again)
        assert batch.keys() == other.keys()
        for key, value in batch.items():
            np.testing.assert_array_equal(value, other[key])
