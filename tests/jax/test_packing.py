"""Arrays of one row per environment, as bytes and back, on the host and in programs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from embodied.jax.packing import PackedRows

ARRAYS = {
    'image': np.arange(2 * 4 * 4 * 3, dtype=np.uint8).reshape(2, 4, 4, 3),
    'flag': np.array([True, False]),
    'vector': np.array([[1.5, -2.25, np.inf], [0.0, 3e-9, -7.0]], np.float32),
    'index': np.array([-5, 2**31 - 1], np.int32),
    'latent': np.array([[1, 65535], [7, 300]], np.uint16),
    'small': np.array([[-128], [127]], np.int8),
    'empty': np.zeros((2, 0), np.float32),
}


def assert_same(ours, expected):
    assert ours.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(ours[name], value, err_msg=name)
        assert ours[name].dtype == value.dtype, name


@pytest.mark.parametrize('join', ['host', 'device'])
@pytest.mark.parametrize('split', ['host', 'device'])
def test_every_way_to_join_is_inverted_by_every_way_to_split(join, split):
    rows = PackedRows(ARRAYS)
    arrays = jax.tree.map(jnp.asarray, ARRAYS)
    data = rows.join(ARRAYS) if join == 'host' else jax.jit(rows.join_on_device)(arrays)
    assert data.ndim == 1
    assert data.dtype == np.uint8
    if split == 'host':
        assert_same(rows.split(np.asarray(data)), ARRAYS)
    else:
        assert_same(jax.jit(rows.split_on_device)(data), ARRAYS)


def test_bfloat16_travels_too():
    value = jnp.array([[1.5, -2.0]], jnp.bfloat16)
    rows = PackedRows({'x': value})
    back = rows.split(np.asarray(rows.join_on_device({'x': value})))
    np.testing.assert_array_equal(np.float32(back['x']), [[1.5, -2.0]])


def test_wide_types_are_narrowed_as_jax_does_it():
    rows = PackedRows({'x': np.array([3, -1])})
    back = rows.split(rows.join({'x': np.array([3, -1])}))
    assert back['x'].dtype == np.int32
    assert back['x'].tolist() == [3, -1]


def test_rows_that_are_not_contiguous_are_copied():
    wide = np.arange(12, dtype=np.int32).reshape(2, 6)[:, ::2]
    rows = PackedRows({'x': wide})
    assert_same(rows.split(rows.join({'x': wide})), {'x': wide})


def test_arrays_on_the_host_are_views_that_begin_at_multiples_of_their_items():
    data = PackedRows(ARRAYS).join(ARRAYS)
    parts = PackedRows(ARRAYS).split(data)
    assert all(x.flags.aligned for x in parts.values())
    assert all(np.shares_memory(x, data) for x in parts.values() if x.size)
