"""Ends that differ in version, run or settings do not connect, and both say why."""

import logging

import pytest

from embodied import transport
from embodied.transport.handshake import identity as identities

DEADLINE = 60.0


def test_equal_identities_are_welcome(serve, connect):
    identity = transport.Identity('run1', {'image': 'uint8 64x64x3', 'batch': 16})
    serve(options={'identity': identity}, f=lambda: 1)
    assert connect(identity=identity).call('f').result(DEADLINE) == 1


def test_names_that_one_side_lacks_are_not_compared(serve, connect):
    serve(options={'identity': transport.Identity('run1', {'a': 1})}, f=lambda: 1)
    client = connect(identity=transport.Identity('', {'b': 2}))
    assert client.call('f').result(DEADLINE) == 1


@pytest.mark.parametrize(
    'ours, theirs, words',
    [
        (('run1', {}), ('run2', {}), 'run: server has run1, client has run2'),
        (('', {'a': 1}), ('', {'a': 2}), 'shared a: server has 1, client has 2'),
        (('', {'s': 'x' * 500}), ('', {'s': 'y' * 500}), 'shared s: server has sha256'),
    ],
    ids=['run', 'setting', 'long'],
)
def test_a_difference_is_refused_and_named_on_both_sides(
    serve, connect, caplog, ours, theirs, words
):
    serve(options={'identity': transport.Identity(*ours)}, f=lambda: 1)
    client = connect(wait=False, identity=transport.Identity(*theirs))
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(transport.Refused, match=words),
    ):
        client.connect(DEADLINE)
    with pytest.raises(transport.Refused, match=words):
        client.call('f')
    # The server logs it; the client raises it and says nothing besides.
    assert sum(words in record.getMessage() for record in caplog.records) == 1


def test_calls_that_wait_for_the_connection_are_refused_too(serve, connect):
    client = connect(wait=False, identity=transport.Identity('b'))
    future = client.call('f')
    serve(options={'identity': transport.Identity('a')}, f=lambda: 1)
    with pytest.raises(transport.Refused):
        future.result(DEADLINE)


def test_versions_are_part_of_every_identity():
    plain = identities.Identity().plain()
    assert set(plain) == {'package', 'python'}
    other = {**plain, 'python': '2.7'}
    assert len(identities.differences(plain, other)) == 1
