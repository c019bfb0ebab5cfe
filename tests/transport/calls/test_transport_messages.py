"""Messages keep every value, and broken ones are recognized."""

import contextlib

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from embodied.transport import MessageError
from embodied.transport.codec import frames as wire
from embodied.transport.codec.encoding import pack, unpack_value
from embodied.transport.codec.schemas import LARGE

DTYPES = [
    *('?', 'i1', 'u1', '<i2', '>i2', '<u4', '<i8', '<u8'),
    *('<f2', '<f4', '>f4', '<f8', 'g', '<c8', '<c16', 'G'),
    *('S5', 'S0', '<U3', '>U3', 'M8[ns]', 'm8[us]', 'M8', 'V7'),
    [('a', '<i4'), ('b', '<f8', (2, 3))],
    {'names': ['x'], 'formats': ['<i4'], 'offsets': [4], 'itemsize': 12},
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn,
]
SHAPES = [(), (0,), (3,), (2, 0, 5), (2, 3, 4)]


def travel(value):
    message = pack(wire.Kind.REPLY, value)
    frames = [bytes(frame) for frame in message.frames()]
    return unpack_value(wire.unpack(frames))


@pytest.mark.parametrize('dtype', DTYPES, ids=str)
@pytest.mark.parametrize('shape', SHAPES, ids=str)
def test_arrays_of_every_dtype_and_shape_arrive_unchanged(dtype, shape):
    dtype = np.dtype(dtype)
    raw = np.random.default_rng(0).bytes(dtype.itemsize * int(np.prod(shape)))
    if dtype.kind == '?' or dtype.kind == 'b':
        raw = bytes(byte & 1 for byte in raw)
    if dtype.kind == 'U':
        raw = bytes(len(raw))
    array = np.ndarray(shape, dtype, raw)
    arrived = travel(array)
    assert arrived.dtype == dtype
    assert arrived.shape == shape
    assert arrived.tobytes() == raw


plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.complex_numbers(allow_nan=False),
    st.text(),
    st.binary(),
)
trees = st.recursive(
    plain,
    lambda children: st.one_of(
        st.lists(children),
        st.lists(children).map(tuple),
        st.dictionaries(st.text(), children),
        st.dictionaries(st.integers(-(2**63), 2**63 - 1), children),
    ),
    max_leaves=20,
)


@given(trees)
@settings(max_examples=100, deadline=None)
def test_trees_of_plain_values_arrive_with_their_types(value):
    arrived = travel(value)
    assert arrived == value
    assert repr(arrived) == repr(value)


@given(hnp.arrays(hnp.scalar_dtypes(), hnp.array_shapes(min_dims=0, min_side=0)))
@settings(max_examples=100, deadline=None)
def test_generated_arrays_arrive_bit_by_bit(array):
    arrived = travel([1, array, 'x'])[1]
    assert arrived.dtype == array.dtype
    assert arrived.tobytes() == array.tobytes()


def test_numpy_scalars_stay_scalars_of_their_type():
    arrived = travel({'a': np.float32(0.1), 'b': np.int8(-3), 'c': np.bool_(True)})
    assert [type(x) for x in arrived.values()] == [np.float32, np.int8, np.bool_]
    assert arrived == {'a': np.float32(0.1), 'b': -3, 'c': True}


def test_strided_views_arrive_as_their_values():
    array = np.arange(24).reshape(2, 3, 4)
    large = np.arange(LARGE).reshape(-1, 4)
    for view in (array[:, ::2], array.T, array[::-1], large[::2], large.T):
        np.testing.assert_array_equal(travel(view), view)


@pytest.mark.parametrize('size', [LARGE - 1, LARGE, LARGE + 1])
def test_sizes_around_the_inline_limit_arrive(size):
    array = np.random.default_rng(0).integers(0, 256, size).astype(np.uint8)
    value = {'a': array, 'b': 'text', 'c': array[:10], 'd': array}
    arrived = travel(value)
    for key in 'acd':
        np.testing.assert_array_equal(arrived[key], value[key])
    assert arrived['b'] == 'text'


def test_small_arrays_are_aligned_and_read_only():
    arrived = travel(['abc', np.arange(3.0), True, np.arange(5.0)])
    for array in (arrived[1], arrived[3]):
        assert array.flags.aligned
        assert not array.flags.writeable


@pytest.mark.parametrize(
    'value, words',
    [
        (object(), 'Cannot send a object'),
        ({1.5: 0}, 'Keys are text or integers'),
        ({True: 0}, 'Keys are text or integers'),
        (np.array([None]), 'no raw buffer'),
        (np.array(['a'], np.dtypes.StringDType()), 'no raw buffer'),
        (np.zeros(2, [('a', 'O')]), 'no raw buffer'),
        ({'a': {1, 2}}, 'Cannot send a set'),
        ('\ud800', 'Cannot be sent'),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_values_that_cannot_be_sent_are_named(value, words):
    with pytest.raises(MessageError, match=words):
        pack(wire.Kind.REPLY, value)


def test_nesting_beyond_the_limit_is_refused():
    value: list = []
    for _ in range(100):
        value = [value]
    with pytest.raises(MessageError, match='nested'):
        pack(wire.Kind.REPLY, value)


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_broken_messages_raise_nothing_but_message_errors(data):
    value = {'a': np.arange(6).reshape(2, 3), 'b': [1, 'text', b'x', None, 2.5]}
    frame = bytearray(pack(wire.Kind.REPLY, value).frames()[0])
    for _ in range(data.draw(st.integers(1, 4))):
        index = data.draw(st.integers(0, len(frame) - 1))
        frame[index] = data.draw(st.integers(0, 255))
    frame = frame[: data.draw(st.integers(0, len(frame)))]
    with contextlib.suppress(MessageError):
        unpack_value(wire.unpack([bytes(frame)]))


@pytest.mark.parametrize(
    'schema',
    [
        b'',
        b'z',
        b'l\xff\xff\xff\xff',
        b'd\x01\x00\x00\x00N',
        b'NN',
        b'l\x01\x00\x00\x00' * 100 + b'N',
        b'a\x03\x00\x00"O"',
        b'a\x05\x00\x02' + b'\xff' * 16 + b'"<i4"',
        b'd\x02\x00\x00\x00' + b's\x01\x00\x00\x00aN' * 2,
    ],
    ids=repr,
)
def test_hostile_schemas_are_refused(schema):
    with pytest.raises(MessageError):
        unpack_value(wire.Message(wire.Kind.REPLY, schema=schema))
