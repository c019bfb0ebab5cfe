"""RSSM: the recurrent state-space model, stepping on observations or on its own.

State: deter [..., D] and stoch [..., S, C], one-hot. The recurrent core is a GRU in
blocks. Whatever does not depend on the state (tokens, actions, noise) is prepared for
all steps at once before the loop over time, and so are most gradients after it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp

from embodied.core.errors import ConfigError
from embodied.jax import nets, outputs, recurrence
from embodied.jax.nets.linear import multiply
from embodied.jax.nets.norm import normalized_silu
from embodied.jax.recurrence import Loops, Memo

__all__ = ['RSSM', 'Kernels', 'State', 'flatten', 'limited']

# Up to this size of deter, a GPU multiplies with blocks as one matrix, mostly zeros:
# the loop over time pays for the number of operations and for unusual layouts.
GPU_DENSE = 512

# A sum over so many is written out: a GPU would launch a kernel for it in each step.
FEW_CLASSES = 32

# Kernels that the state is multiplied with in each step.
LOOP_KERNELS = (
    *('stoch_in', 'hidden_own', 'hidden_shared', 'gru'),
    *('deter_out', 'post_logit'),
)

Kernels: TypeAlias = dict[str, jax.Array]


class State(NamedTuple):
    """deter: [..., D], stoch: [..., S, C], both in the compute dtype."""

    deter: jax.Array
    stoch: jax.Array

    @property
    def feat(self) -> jax.Array:
        """[..., D + S * C], what the heads look at."""
        return jnp.concatenate([self.deter, flatten(self.stoch)], -1)


class RSSM(eqx.Module):
    """Prior p(z | h), posterior q(z | h, tokens) and core h' = f(h, z, a)."""

    deter_in: nets.Layer
    stoch_in: nets.Layer
    action_in: nets.Layer
    hidden: nets.BlockLinear
    hidden_norm: nets.RMSNorm
    gru: nets.BlockLinear
    post: nets.Layer
    post_logit: nets.Linear
    prior: nets.MLP
    prior_logit: nets.Linear
    stoch: int = eqx.field(static=True)
    classes: int = eqx.field(static=True)
    blocks: int = eqx.field(static=True)
    unimix: float = eqx.field(static=True)

    def __init__(self, init: nets.Init, tokens: int, actions: int, config: Any):
        deter, hidden, blocks = config.deter, config.hidden, config.blocks
        if deter % blocks:
            raise ConfigError(
                f'agent.dyn.deter={deter} must be a multiple of '
                f'agent.dyn.blocks={blocks}.'
            )
        flat = config.stoch * config.classes
        self.stoch, self.classes = config.stoch, config.classes
        self.blocks, self.unimix = blocks, config.unimix
        self.deter_in = nets.Layer(init, deter, hidden)
        self.stoch_in = nets.Layer(init, flat, hidden)
        self.action_in = nets.Layer(init, actions, hidden)
        # Each block sees its own slice of deter, then the three inputs in full.
        width = deter + blocks * 3 * hidden
        self.hidden = nets.BlockLinear(init, width, deter, blocks)
        self.hidden_norm = nets.RMSNorm(deter)
        self.gru = nets.BlockLinear(init, deter, 3 * deter, blocks)
        self.post = nets.Layer(init, deter + tokens, hidden)
        self.post_logit = nets.Linear(init, hidden, flat)
        self.prior = nets.MLP(init, deter, hidden, 2)
        self.prior_logit = nets.Linear(init, hidden, flat)

    @property
    def deter(self) -> int:
        return self.hidden_norm.scale.shape[0]

    def initial(self, batch: int, dtype: Any) -> State:
        """The state before the first step of an episode."""
        stoch = jnp.zeros((batch, self.stoch, self.classes), dtype)
        return State(jnp.zeros((batch, self.deter), dtype), stoch)

    def observe(
        self,
        state: State,
        tokens: jax.Array,
        action: jax.Array,
        reset: jax.Array,
        gumbel: jax.Array,
        kernels: Kernels | None = None,
        loops: Loops | None = None,
    ) -> tuple[State, jax.Array]:
        """Follows recorded steps; returns states and posterior logits of each.

        state: before the first step, [B, ...]. tokens: [B, T, tokens]. action:
        [B, T, actions], the one taken before each step. reset: [B, T] bool, where an
        episode begins. gumbel: [B, T, S, C]. kernels: self.kernels(), if there are any.
        loops: of these sizes, instead of the plain ones.
        """
        if kernels is None:
            # Loops of their own take the blocks as they are.
            kernels = self.kernels(state.deter.dtype, dense=False if loops else None)
        drives = (
            self._action_drive(kernels, masked(action, reset)),
            self._token_drive(kernels, tokens),
        )
        # Here once for good; within the loop products are masked, not their inputs,
        # which would be operations of their own.
        state = State(*(masked(x, reset[:, 0]) for x in state))
        carry = (state, state.deter @ kernels['deter_in'])
        # Without the matrices, which the loop has as kernels.
        vectors = eqx.filter(self, lambda x: eqx.is_array(x) and x.ndim == 1)
        drives, fixed = jax.tree.map(time_first, (drives, (reset, gumbel)))
        step = RSSM._observe_step
        params = (vectors, {k: kernels[k] for k in LOOP_KERNELS if k in kernels})
        outs = recurrence.scan(step, params, carry, drives, fixed, loops)
        (states, _), logits = jax.tree.map(time_first, outs)
        return states, logits

    @staticmethod
    def _observe_step(
        memo: Memo, params: Any, carry: tuple, drives: Any, fixed: Any
    ) -> tuple[tuple[State, jax.Array], jax.Array]:
        self, kernels = params
        action_drive, token_drive = drives
        reset, gumbel = fixed
        state, deter_drive = carry
        product = lambda name, x: memo(name, multiply, x, kernels[name])
        if 'hidden_own' in kernels:
            own_drive = product('hidden_own', state.deter)
            input_drive = deter_drive
        else:
            hidden = self.deter_in.norm.scale.shape[0]
            input_drive, own_drive = jnp.split(deter_drive, [hidden], -1)
        drives = (input_drive, product('stoch_in', flatten(state.stoch)))
        rest = (masked(own_drive, reset) + action_drive,)
        deter = self.core(memo, kernels, state.deter, drives, rest, reset)
        x = memo('deter_out', multiply, deter, kernels['deter_out'])
        deter_drive, x = jnp.split(x, [deter_drive.shape[-1]], -1)
        scale = self.post.norm.scale
        x = memo('post', normalized_silu, x + token_drive, scale)
        x = memo('post_logit', multiply, x, kernels['post_logit'])
        logit = self._logits(x + self.post_logit.bias.astype(x.dtype))
        state = State(deter, self._sample(memo, logit, gumbel, deter.dtype))
        return (state, deter_drive), logit

    def imagine(self, state: State, action: jax.Array, gumbel: jax.Array) -> State:
        """Follows recorded actions [B, T, actions] without seeing observations."""

        def step(state, inputs):
            state = self.imagine_step(state, *inputs)
            return state, state

        inputs = jax.tree.map(time_first, (action, gumbel))
        _, states = jax.lax.scan(step, state, inputs)
        return jax.tree.map(time_first, states)

    def imagine_step(self, state: State, action: jax.Array, gumbel: jax.Array) -> State:
        """One step without observation; action: [N, actions], gumbel: [N, S, C]."""
        kernels = self._imagine_kernels(state.deter.dtype)
        drive = self._action_drive(kernels, action)
        params = (self, kernels)
        return self._imagine_step(recurrence.compute, params, state, drive, gumbel)[0]

    def follow(self, states: State, action: jax.Array, gumbel: jax.Array) -> State:
        """Imagined states, with the gradient that the actions have through the model.

        states: [H + 1, N, ...], the first before the first action; the values of the
        result. action: [H, N, actions]. gumbel: [H, N, S, C]. Samples are
        straight-through.
        """
        kernels = self._imagine_kernels(states.deter.dtype)
        vectors = eqx.filter(self, lambda x: eqx.is_array(x) and x.ndim == 1)
        start = jax.tree.map(lambda x: x[0], states)
        known = jax.tree.map(lambda x: x[1:], states)
        drives = self._action_drive(kernels, action)
        states, _ = recurrence.follow(
            RSSM._imagine_step, (vectors, kernels), start, drives, gumbel, (known, ())
        )
        return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), start, states)

    @staticmethod
    def _imagine_step(
        memo: Memo, params: Any, state: State, action_drive: jax.Array, gumbel: Any
    ) -> tuple[State, tuple[()]]:
        self, kernels = params
        product = lambda name, x: memo(name, multiply, x, kernels[name])
        drives = (
            product('deter_in', state.deter),
            product('stoch_in', flatten(state.stoch)),
        )
        rest = (product('hidden_own', state.deter) + action_drive,)
        deter = x = self.core(memo, kernels, state.deter, drives, rest)
        for index, layer in enumerate(self.prior.layers):
            x = product(f'prior{index}', x) + layer.linear.bias.astype(x.dtype)
            x = memo(f'prior_norm{index}', normalized_silu, x, layer.norm.scale)
        x = product('prior_logit', x) + self.prior_logit.bias.astype(x.dtype)
        stoch = self._sample(memo, self._logits(x), gumbel, deter.dtype)
        return State(deter, stoch), ()

    def sample_prior(self, x: jax.Array, gumbel: jax.Array, dtype: Any) -> jax.Array:
        """stoch from the product of deter with the first layer of the prior."""
        logit = self._logits(self.prior_logit(self.prior.after(x)))
        return self._sample(recurrence.compute, logit, gumbel, dtype)

    def prior_of(self, deter: jax.Array) -> jax.Array:
        """Prior logits [..., S, C] float32."""
        return self._logits(self.prior_logit(self.prior(deter)))

    def dist(self, logit: jax.Array) -> outputs.Categorical:
        """logit: [..., S, C]; divergences and entropies are summed over S."""
        return outputs.Categorical(logit, self.unimix, event_rank=1)

    def kernels(self, dtype: Any, dense: bool | None = None) -> Kernels:
        """The matrices in the form in which they are used, by name.

        The hidden layer is a block matrix on deter [G, D/G, D/G] and a dense one on
        the three inputs [hidden, D] each, which all blocks share. The same deter goes
        to the posterior and to the next step: `deter_out` is both. dense: block
        matrices as whole ones, `hidden_own` as columns of `deter_in`; None is as this
        device likes it.
        """
        if dense is None:
            dense = self.deter <= GPU_DENSE and jax.default_backend() == 'gpu'
        kernel, post = self.hidden.kernel, self.post.linear.kernel
        blocks, rows, cols = kernel.shape
        own = self.deter // blocks
        shared = kernel[:, own:].transpose(1, 0, 2).reshape(rows - own, blocks * cols)
        inputs = len(shared) * 2 // 3
        deter_in, gru = self.deter_in.linear.kernel, self.gru.kernel
        if dense:
            deter_in = jnp.concatenate([deter_in, whole(kernel[:, :own])], 1)
            gru = whole(gru)
        kernels = {
            'deter_in': deter_in,
            'stoch_in': self.stoch_in.linear.kernel,
            **({} if dense else {'hidden_own': kernel[:, :own]}),
            'hidden_shared': shared[:inputs],
            'hidden_action': shared[inputs:],
            'gru': gru,
            'deter_out': jnp.concatenate([deter_in, post[: self.deter]], 1),
            'post_tokens': post[self.deter :],
            'post_logit': self.post_logit.kernel,
        }
        return {k: v.astype(dtype) for k, v in kernels.items()}

    def _imagine_kernels(self, dtype: Any) -> Kernels:
        """The matrices for a step without observation, with those of the prior."""
        names = ('deter_in', 'stoch_in', 'hidden_own', 'hidden_shared', 'hidden_action')
        kernels = self.kernels(dtype, dense=False)
        prior = [layer.linear.kernel for layer in self.prior.layers]
        return {
            **{name: kernels[name] for name in (*names, 'gru')},
            **{f'prior{i}': x.astype(dtype) for i, x in enumerate(prior)},
            'prior_logit': self.prior_logit.kernel.astype(dtype),
        }

    def core(
        self,
        memo: Memo,
        kernels: Kernels,
        deter: jax.Array,
        drives: Sequence[jax.Array],
        rest: Sequence[jax.Array],
        reset: jax.Array | None = None,
    ) -> jax.Array:
        """deter' = update * cand + (1 - update) * deter.

        drives: products of deter, stoch and maybe action with their input layers. rest:
        [..., D], what the hidden layer adds to those. reset: [...] bool, where to begin
        from the zero state instead; `rest` knows of it.
        """
        forget = lambda x: x if reset is None else masked(x, reset)
        product = lambda name, x: memo(name, multiply, x, kernels[name])
        deter = forget(deter)
        # All input layers at once: a loop pays for the number of operations.
        layers = (self.deter_in, self.stoch_in, self.action_in)[: len(drives)]
        bias = jnp.stack([x.linear.bias for x in layers])
        scale = jnp.stack([x.norm.scale for x in layers])
        x = forget(jnp.stack(drives, -2)) + bias.astype(deter.dtype)
        x = memo('inputs', normalized_silu, x, scale)
        # The sum goes into the product, which leaves the norm alone with its input.
        x = sum(rest, product('hidden_shared', x.reshape(*x.shape[:-2], -1)))
        x = memo('hidden', normalized_silu, x, self.hidden_norm.scale)
        gates = product('gru', x).reshape(*deter.shape[:-1], self.blocks, 3, -1)
        # Added to each gate: to all of them it would be copied before the product.
        bias = self.gru.bias.astype(x.dtype).reshape(self.blocks, 3, -1)
        gate, cand, update = (
            (gates[..., i, :] + bias[:, i]).reshape(deter.shape) for i in range(3)
        )
        cand = jnp.tanh(jax.nn.sigmoid(gate) * cand)
        update = jax.nn.sigmoid(update - 1)
        return update * cand + (1 - update) * deter

    def _action_drive(self, kernels: Kernels, action: jax.Array) -> jax.Array:
        """The action's share of the hidden layer [..., D], its bias included."""
        x = self.action_in(limited(action)) @ kernels['hidden_action']
        return x + self.hidden.bias.astype(x.dtype)

    def _token_drive(self, kernels: Kernels, tokens: jax.Array) -> jax.Array:
        """The tokens' share of the posterior layer [..., hidden], bias included."""
        bias = self.post.linear.bias.astype(tokens.dtype)
        return tokens @ kernels['post_tokens'] + bias

    def _logits(self, x: jax.Array) -> jax.Array:
        x = x.reshape(*x.shape[:-1], self.stoch, self.classes)
        return x.astype(jnp.float32)

    def _sample(
        self, memo: Memo, logit: jax.Array, gumbel: jax.Array, dtype: Any
    ) -> jax.Array:
        """One-hot [..., S, C] as self.dist(logit).sample_onehot(gumbel) draws it."""
        sample = Sample(self.unimix)
        return memo('sample', sample, logit, gumbel).astype(dtype)


class Sample(NamedTuple):
    """One-hot samples of logits, with the gradient of the probabilities, as a
    recurrence.Sloped."""

    unimix: float

    def __call__(self, logit: jax.Array, gumbel: jax.Array) -> jax.Array:
        # As outputs.Categorical does it, whose way by logarithms would take a GPU two
        # more kernels in each step at size12m.
        probs = (1 - self.unimix) * jax.nn.softmax(logit, -1)
        probs = probs + self.unimix / logit.shape[-1]
        onehot = outputs.first_largest(jax.lax.stop_gradient(jnp.log(probs) + gumbel))
        return jax.lax.stop_gradient(onehot - probs) + probs

    def slope(self, logit: jax.Array, gumbel: jax.Array) -> jax.Array:
        return jax.nn.softmax(logit, -1)

    def pull(self, slope: jax.Array, grad: jax.Array) -> jax.Array:
        grad = (1 - self.unimix) * grad
        along = slope * grad
        if (classes := grad.shape[-1]) <= FEW_CLASSES:
            first, *others = jnp.split(along, classes, -1)
            along = sum(others, first)
        else:
            along = along.sum(-1, keepdims=True)
        return slope * (grad - along)


def whole(blocks: jax.Array) -> jax.Array:
    """[G, i, o] -> the block diagonal matrix [G * i, G * o]."""
    count, rows, cols = blocks.shape
    own = jnp.eye(count, dtype=bool)[:, None, :, None]
    return jnp.where(own, blocks[:, :, None], 0).reshape(count * rows, count * cols)


def limited(action: jax.Array) -> jax.Array:
    """The action in [-1, 1], with the gradient of what lies within."""
    return action / jax.lax.stop_gradient(jnp.maximum(1, jnp.abs(action)))


def flatten(stoch: jax.Array) -> jax.Array:
    """[..., S, C] -> [..., S * C]."""
    return stoch.reshape(*stoch.shape[:-2], -1)


def masked(x: jax.Array, reset: jax.Array) -> jax.Array:
    """x [B, ..., *rest] with zeros where reset [B, ...] is true."""
    # Not a product: NaN times zero would get through.
    return jnp.where(reset.reshape(*reset.shape, *[1] * (x.ndim - reset.ndim)), 0, x)


def time_first(x: jax.Array) -> jax.Array:
    """Swaps the batch and the time axis."""
    return x.swapaxes(0, 1)
