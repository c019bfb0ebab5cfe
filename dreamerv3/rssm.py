"""RSSM: the recurrent state-space model, stepping on observations or on its own.

State: deter [..., D] and stoch [..., S, C], one-hot. The recurrent core is a GRU in
blocks. Whatever does not depend on the state (tokens, actions, noise) is prepared for
all steps at once before the loop over time.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from embodied.core.errors import ConfigError
from embodied.jax import nets, outputs
from embodied.jax.nets.linear import block_matmul

__all__ = ['RSSM', 'State']

UNROLL = 4  # time steps per iteration of the compiled loop


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
        self.unimix = config.unimix
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
    ) -> tuple[State, jax.Array]:
        """Follows recorded steps; returns states and posterior logits of each.

        state: before the first step, [B, ...]. tokens: [B, T, tokens]. action:
        [B, T, actions], the one taken before each step. reset: [B, T] bool, where an
        episode begins. gumbel: [B, T, S, C].
        """
        action_drive = self._action_drive(masked(action, reset))
        token_drive = self._token_drive(tokens)

        def step(state, inputs):
            action_drive, token_drive, reset, gumbel = inputs
            state = State(*(masked(x, reset) for x in state))
            deter = self._core(state, action_drive)
            logit = self._posterior(deter, token_drive)
            state = State(deter, self._sample(logit, gumbel, deter.dtype))
            return state, (state, logit)

        inputs = (action_drive, token_drive, reset, gumbel)
        inputs = jax.tree.map(time_first, inputs)
        unroll = min(UNROLL, reset.shape[1])
        _, outs = jax.lax.scan(step, state, inputs, unroll=unroll)
        return jax.tree.map(time_first, outs)

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
        deter = self._core(state, self._action_drive(action))
        return State(deter, self._sample(self.prior_of(deter), gumbel, deter.dtype))

    def prior_of(self, deter: jax.Array) -> jax.Array:
        """Prior logits [..., S, C] float32."""
        return self._logits(self.prior_logit(self.prior(deter)))

    def dist(self, logit: jax.Array) -> outputs.Categorical:
        """logit: [..., S, C]; divergences and entropies are summed over S."""
        return outputs.Categorical(logit, self.unimix, event_rank=1)

    def _core(self, state: State, action_drive: jax.Array) -> jax.Array:
        """deter' = update * cand + (1 - update) * deter."""
        deter = state.deter
        inputs = [self.deter_in(deter), self.stoch_in(flatten(state.stoch))]
        own, shared = self._hidden_kernels(deter.dtype)
        split = shared.shape[0] * 2 // 3
        x = block_matmul(deter, own) + action_drive
        x = x + jnp.concatenate(inputs, -1) @ shared[:split]
        x = jax.nn.silu(self.hidden_norm(x))
        blocks = own.shape[0]
        gates = self.gru(x).reshape(*x.shape[:-1], blocks, 3, -1)
        reset, cand, update = (gates[..., i, :].reshape(deter.shape) for i in range(3))
        cand = jnp.tanh(jax.nn.sigmoid(reset) * cand)
        update = jax.nn.sigmoid(update - 1)
        return update * cand + (1 - update) * deter

    def _action_drive(self, action: jax.Array) -> jax.Array:
        """The action's share of the hidden layer [..., D], its bias included."""
        action = action / jax.lax.stop_gradient(jnp.maximum(1, jnp.abs(action)))
        x = self.action_in(action)
        _, shared = self._hidden_kernels(x.dtype)
        split = shared.shape[0] * 2 // 3
        return x @ shared[split:] + self.hidden.bias.astype(x.dtype)

    def _hidden_kernels(self, dtype: Any) -> tuple[jax.Array, jax.Array]:
        """The hidden layer as a block matrix on deter [G, D/G, D/G] and a dense one on
        the three inputs [3 * hidden, D], which all blocks share."""
        kernel = self.hidden.kernel.astype(dtype)
        blocks, rows, cols = kernel.shape
        own = self.deter // blocks
        shared = kernel[:, own:].transpose(1, 0, 2).reshape(rows - own, blocks * cols)
        return kernel[:, :own], shared

    def _token_drive(self, tokens: jax.Array) -> jax.Array:
        """The tokens' share of the posterior layer [..., hidden], bias included."""
        linear = self.post.linear
        kernel = linear.kernel[self.deter :].astype(tokens.dtype)
        return tokens @ kernel + linear.bias.astype(tokens.dtype)

    def _posterior(self, deter: jax.Array, token_drive: jax.Array) -> jax.Array:
        kernel = self.post.linear.kernel[: self.deter].astype(deter.dtype)
        x = jax.nn.silu(self.post.norm(deter @ kernel + token_drive))
        return self._logits(self.post_logit(x))

    def _logits(self, x: jax.Array) -> jax.Array:
        x = x.reshape(*x.shape[:-1], self.stoch, self.classes)
        return x.astype(jnp.float32)

    def _sample(self, logit: jax.Array, gumbel: jax.Array, dtype: Any) -> jax.Array:
        return self.dist(logit).sample_onehot(gumbel).astype(dtype)


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
