"""Batches on their way to a device: small arrays as one, large ones as they are."""

import jax
import numpy as np
import pytest

from embodied.jax.batch_transfer import SMALL, BatchLayout

BATCH = {
    'small': np.array([[1.5, -2.0], [3.0, 4.0]], np.float32),
    'large': np.arange(2 * SMALL, dtype=np.uint8).reshape(2, -1),
    'flag': np.array([True, False]),
}


@pytest.mark.parametrize(('join', 'arrays'), [(True, 2), (False, 3)])
def test_a_program_gets_the_batch_that_was_packed(join, arrays):
    packed = BatchLayout(BATCH, join).pack(BATCH)
    assert len(jax.tree.leaves(packed)) == arrays
    back = jax.jit(lambda packed: packed.unpack())(packed)
    assert back.keys() == BATCH.keys()
    for name, value in BATCH.items():
        np.testing.assert_array_equal(back[name], value, err_msg=name)
        assert back[name].dtype == value.dtype, name


@pytest.mark.parametrize('join', [True, False])
def test_large_arrays_are_not_copied_on_the_host(join):
    packed = BatchLayout(BATCH, join).pack(BATCH)
    assert any(x is BATCH['large'] for x in jax.tree.leaves(packed))


@pytest.mark.parametrize('join', [True, False])
def test_shapes_are_those_of_what_is_packed(join):
    layout = BatchLayout(BATCH, join)
    shape = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype)
    shapes = layout.shapes({k: shape(v) for k, v in BATCH.items()})
    assert shapes == jax.tree.map(shape, layout.pack(BATCH))


def test_one_small_array_alone_stays_as_it_is():
    batch = {k: BATCH[k] for k in ('small', 'large')}
    packed = BatchLayout(batch, join=True).pack(batch)
    assert packed.arrays.keys() == batch.keys()
