"""Actions of any mix of keys: vectors, samples, log-probabilities, refused spaces."""

import elements
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamerv3.agent.actions import Actions
from embodied.core.errors import SpaceError
from embodied.jax import outputs

SPACES = {
    'turn': elements.Space(np.float32, 2, -1, 1),
    'buttons': elements.Space(np.int32, 2, 0, 3),
    'fire': elements.Space(bool),
    'speed': elements.Space(np.float32, (), -1, 1),
}


def test_vector_is_sorted_with_discrete_keys_one_hot():
    actions = Actions(SPACES)
    values = {
        'turn': jnp.array([[0.5, -2.0]]),
        'buttons': jnp.array([[2, 0]]),
        'fire': jnp.array([True]),
        'speed': jnp.array([7.0]),
    }
    expected = [0, 0, 1, 1, 0, 0, 0, 1, 7.0, 0.5, -2.0]
    assert actions.size == len(expected)
    assert actions.vector(values, jnp.float32).tolist() == [expected]


def test_vectors_keep_all_leading_axes():
    actions = Actions(SPACES)
    zeros = jax.tree.map(lambda x: jnp.stack([x] * 5), actions.zeros(4))
    assert actions.vector(zeros, jnp.bfloat16).shape == (5, 4, 11)
    assert actions.vector(zeros, jnp.bfloat16).dtype == jnp.bfloat16


def test_samples_have_shapes_and_types_of_their_spaces():
    actions = Actions(SPACES)
    dists = {
        'turn': outputs.Normal(jnp.zeros((6, 2)), jnp.ones((6, 2))),
        'buttons': outputs.Categorical(jnp.zeros((6, 2, 3)), event_rank=1),
        'fire': outputs.Categorical(jnp.zeros((6, 2))),
        'speed': outputs.Normal(jnp.zeros(6), jnp.ones(6), event_rank=0),
    }
    noise = actions.noise(jax.random.key(0), (6,))
    for values in (actions.sample(dists, noise), actions.pred(dists)):
        for name, value in actions.cast(values).items():
            assert value.shape == (6, *SPACES[name].shape), name
            assert value.dtype == SPACES[name].dtype, name
    sample = actions.sample(dists, noise)
    each = [dists[k].logp(sample[k]) for k in SPACES]
    np.testing.assert_allclose(actions.logp(dists, sample), sum(each), rtol=1e-6)
    assert actions.logp(dists, sample).shape == (6,)


def test_keys_get_different_noise():
    space = elements.Space(np.float32, 4, -1, 1)
    noise = Actions({'a': space, 'b': space}).noise(jax.random.key(0), (3,))
    assert not np.allclose(noise['a'], noise['b'])


@pytest.mark.parametrize(
    ('spaces', 'parts'),
    [
        ({}, ['no action', "'reset'", 'act_space']),
        (
            {'force': elements.Space(np.float32, 3)},
            ["'force'", 'finite bounds', 'NormalizeAction'],
        ),
        (
            {'force': elements.Space(np.float32, 2, -1, [1, np.inf])},
            ["'force'", 'finite bounds'],
        ),
        (
            {'pick': elements.Space(np.int32, 2, 0, [3, 4])},
            ["'pick'", '[3, 4] classes', 'one key per element'],
        ),
        (
            {'step': elements.Space(np.int32, (), -1, 2)},
            ["'step'", 'start at 0', 'Shift'],
        ),
        (
            {'id': elements.Space(np.int32, (), 0, 2**31 - 1)},
            ["'id'", 'classes', '10,000'],
        ),
    ],
)
def test_spaces_that_cannot_work_are_explained(spaces, parts):
    with pytest.raises(SpaceError) as error:
        Actions(spaces)
    for part in parts:
        assert part in str(error.value)
