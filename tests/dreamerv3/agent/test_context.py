"""Replay context: where training starts, and what is written back."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamerv3 import config
from dreamerv3.agent.networks import latents
from dreamerv3.agent.networks.rssm import RSSM, State
from dreamerv3.agent.replay_context import Carry, cut_context
from embodied.jax import nets

BATCH, LENGTH = 2, 4
DETER, STOCH, CLASSES = 3, 2, 4


@pytest.fixture(scope='module')
def dyn():
    """The recurrent model by its shapes alone, as its parameters do not matter."""
    sizes = types.SimpleNamespace(
        deter=DETER, stoch=STOCH, classes=CLASSES, hidden=5, blocks=1, unimix=0.01
    )
    make = lambda init: RSSM(init, 3, 2, sizes)
    return jax.eval_shape(lambda: nets.build(make, jax.random.key(0)))


def onehot(index):
    return np.eye(CLASSES, dtype=np.float32)[index]


def make_batch(context, consec):
    """Steps whose every value tells its row and time."""
    rng = np.random.default_rng(0)
    lead = (BATCH, context + LENGTH)
    time = np.arange(np.prod(lead)).reshape(lead)
    return {
        'vector': time[..., None].astype(np.float32),
        'action': time.astype(np.int32),
        'is_first': np.zeros(lead, bool),
        'consec': np.broadcast_to(np.array(consec)[:, None], lead),
        'dyn/deter': rng.standard_normal((*lead, DETER)).astype(np.float32),
        'dyn/stoch': rng.integers(0, CLASSES, (*lead, STOCH), np.uint8),
    }


def make_carry():
    deter = np.full((BATCH, DETER), 7, np.float32)
    stoch = onehot(np.full((BATCH, STOCH), 3))
    return Carry(State(deter, stoch), {'action': np.array([70, 80], np.int32)})


def cut(batch, context, dyn):
    if not context:
        batch = {k: v for k, v in batch.items() if not k.startswith('dyn/')}
    return cut_context(batch, make_carry(), context, dyn, jnp.float32)


@pytest.mark.parametrize('context', [0, 1, 3])
def test_context_steps_are_cut_off(context, dyn):
    batch = make_batch(context, [0, 0])
    steps = cut(batch, context, dyn).batch
    assert set(steps) == {'vector', 'action', 'is_first', 'consec'}
    for name, value in steps.items():
        np.testing.assert_array_equal(value, batch[name][:, context:])


@pytest.mark.parametrize('context', [1, 3])
def test_first_batches_start_from_the_latent_before_the_first_trained_step(
    context, dyn
):
    batch = make_batch(context, [0, 0])
    start = cut(batch, context, dyn).start
    np.testing.assert_array_equal(start.deter, batch['dyn/deter'][:, context - 1])
    stored = onehot(batch['dyn/stoch'][:, context - 1])
    np.testing.assert_array_equal(start.stoch, stored)


def test_first_batches_start_from_zeros_without_context(dyn):
    start = cut(make_batch(0, [0, 0]), 0, dyn).start
    assert not np.any(start.deter)
    assert not np.any(start.stoch)


@pytest.mark.parametrize('context', [0, 1, 3])
def test_later_batches_start_from_the_carry_row_by_row(context, dyn):
    batch = make_batch(context, [0, 1])
    start, carry = cut(batch, context, dyn).start, make_carry().state
    np.testing.assert_array_equal(start.deter[1], carry.deter[1])
    np.testing.assert_array_equal(start.stoch[1], carry.stoch[1])
    assert not np.array_equal(start.deter[0], carry.deter[0])
    assert not np.array_equal(start.stoch[0], carry.stoch[0])


@pytest.mark.parametrize('context', [1, 3])
def test_each_step_sees_the_action_of_the_step_before_it(context, dyn):
    batch = make_batch(context, [0, 1])
    previous = cut(batch, context, dyn).previous['action']
    np.testing.assert_array_equal(previous, batch['action'][:, context - 1 : -1])


def test_without_context_the_carry_holds_the_action_before_the_batch(dyn):
    batch = make_batch(0, [1, 1])
    previous = cut(batch, 0, dyn).previous['action']
    np.testing.assert_array_equal(previous[:, 0], [70, 80])
    np.testing.assert_array_equal(previous[:, 1:], batch['action'][:, :-1])
    assert previous.dtype == batch['action'].dtype


# Latents


@pytest.mark.parametrize('dtype', [jnp.float32, jnp.bfloat16])
def test_packing_is_exact(dtype, dyn):
    rng = np.random.default_rng(0)
    deter = rng.standard_normal((5, 4, DETER)) * 10.0 ** rng.integers(
        -30, 30, (5, 4, 1)
    )
    deter = jnp.asarray(deter, jnp.float32).astype(dtype)
    stoch = jnp.asarray(onehot(rng.integers(0, CLASSES, (5, 4, STOCH)))).astype(dtype)
    entries = latents.pack(State(deter, stoch))
    state = latents.unpack(jax.tree.map(np.asarray, entries), dyn, dtype)
    assert state.deter.dtype == state.stoch.dtype == dtype
    np.testing.assert_array_equal(np.float32(state.deter), np.float32(deter))
    np.testing.assert_array_equal(np.float32(state.stoch), np.float32(stoch))


@pytest.mark.parametrize('dtype', [jnp.float32, jnp.bfloat16])
def test_packed_latents_lie_in_their_spaces(dtype):
    dyn = types.SimpleNamespace(deter=DETER, stoch=STOCH)
    state = State(jnp.ones((DETER,), dtype), jnp.asarray(onehot([1, 3]), dtype))
    spaces = latents.latent_spaces(dyn, jnp.dtype(dtype))
    for name, entry in latents.pack(state).items():
        assert np.asarray(entry) in spaces[name], name
        # Any code that reads replay must know the type: bfloat16 is not NumPy's own.
        assert entry.dtype.kind in 'fu', name


def test_stored_bits_are_those_of_bfloat16():
    state = State(jnp.array([1.0, -2.0], jnp.bfloat16), jnp.ones((1, 1)))
    assert latents.pack(state)['dyn/deter'].tolist() == [0x3F80, 0xC000]


def test_latents_of_the_presets_are_compact():
    dyn = config.resolve([])[0].agent.dyn
    spaces = latents.latent_spaces(dyn, jnp.dtype(jnp.bfloat16))
    size = sum(np.prod(x.shape) * x.dtype.itemsize for x in spaces.values())
    assert size == 2 * 8192 + 32
