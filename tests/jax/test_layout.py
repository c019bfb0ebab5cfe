"""Tensors in one vector: the way there and back, and norms per tensor."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from embodied.jax.layout import CHUNK, Layout

SHAPES = {
    'scalar': (),
    'few': (3,),
    'exact': (CHUNK,),
    'matrix': (40, 60),
    'more': (CHUNK + 1,),
}


@pytest.fixture
def tree():
    rng = np.random.default_rng(0)
    normal = lambda shape: jnp.asarray(rng.standard_normal(shape), jnp.float32)
    return {k: normal(shape) for k, shape in SHAPES.items()}


def test_splitting_inverts_joining(tree):
    layout = Layout(jax.eval_shape(lambda: tree))
    vector = layout.join(tree)
    assert vector.shape == (layout.size,)
    assert layout.size == CHUNK * (1 + 1 + 1 + 3 + 2)
    back = layout.split(vector)
    assert back.keys() == tree.keys()
    for name, value in tree.items():
        np.testing.assert_array_equal(back[name], value, err_msg=name)


def test_a_tree_of_half_precision_becomes_float32(tree):
    half = jax.tree.map(lambda x: x.astype(jnp.bfloat16), tree)
    vector = Layout(tree).join(half)
    assert vector.dtype == jnp.float32
    assert float(jnp.abs(vector).max()) > 1


def test_padding_is_zero_so_that_norms_of_vectors_are_those_of_trees(tree):
    vector = Layout(tree).join(tree)
    expected = np.sqrt(sum(np.square(x).sum() for x in tree.values()))
    np.testing.assert_allclose(jnp.linalg.norm(vector), expected, rtol=1e-5)


def test_norms_and_factors_are_per_tensor(tree):
    layout = Layout(tree)
    vector = layout.join(tree)
    expected = [np.linalg.norm(tree[k]) for k in sorted(tree)]
    np.testing.assert_allclose(layout.norms(vector), expected, rtol=1e-6)
    factors = np.arange(1.0, 1 + len(SHAPES), dtype=np.float32)
    scaled = layout.split(layout.scale(vector, jnp.asarray(factors)))
    for name, factor in zip(sorted(tree), factors, strict=True):
        np.testing.assert_array_equal(scaled[name], factor * tree[name])


@pytest.mark.parametrize('shards', [1, 2, 8])
def test_every_shard_gets_the_same_number_of_chunks(tree, shards):
    plain, padded = Layout(tree), Layout(tree, shards)
    assert padded.size % (shards * CHUNK) == 0
    assert padded.end == plain.size
    vector = padded.join(tree)
    np.testing.assert_array_equal(vector[: plain.size], plain.join(tree))
    assert not vector[plain.size :].any()
    expected = plain.norms(plain.join(tree))
    np.testing.assert_allclose(padded.norms(vector), expected, rtol=1e-6)
    for name, value in padded.split(vector).items():
        np.testing.assert_array_equal(value, tree[name], err_msg=name)
