"""DreamerV3 as pure functions: one loss over world model, policy and value."""

import functools
from typing import Any, NamedTuple

import elements
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from embodied.core.base import Spaces
from embodied.jax import nets, outputs
from embodied.jax.devices import Devices
from embodied.jax.layout import Layout
from embodied.jax.model import Model, TrainResult

from . import behavior
from .actions import Actions, Values
from .limits import check_limits, check_policy_grad
from .networks import latents
from .networks.decoder import Decoder
from .networks.encoder import Encoder
from .networks.heads import BinaryHead, Policy, ScalarHead
from .networks.inputs import Inputs
from .networks.kernels.fused import choose_loops
from .networks.rssm import RSSM, Kernels, State
from .optimizer import make_optimizer
from .replay_context import Carry, Sequence, cut_context
from .report import open_loop_video
from .returns import Range

__all__ = ['Dreamer', 'Nets', 'PolicyParams']

# Losses in the order in which a bad value spreads; JAX sorts dicts by their keys.
LOSS_ORDER = ('dyn', 'rep', 'rec', 'rew', 'con', 'policy', 'value', 'repval')

sg = jax.lax.stop_gradient


class Nets(eqx.Module):
    """Everything the optimizer changes."""

    enc: Encoder
    dyn: RSSM
    dec: Decoder
    reward: ScalarHead
    cont: BinaryHead
    policy: Policy
    value: ScalarHead

    def __init__(self, init: nets.Init, inputs: Inputs, actions: Actions, config: Any):
        deter, flat = config.dyn.deter, config.dyn.stoch * config.dyn.classes
        feat = deter + flat
        self.enc = Encoder(init, inputs, config.enc)
        self.dyn = RSSM(init, self.enc.size, actions.size, config.dyn)
        self.dec = Decoder(init, inputs, deter, flat, config.dec)
        self.reward = ScalarHead(init, feat, config.reward)
        self.cont = BinaryHead(init, feat, config.cont)
        self.policy = Policy(init, feat, actions, config.policy)
        self.value = ScalarHead(init, feat, config.value)


class Weights(NamedTuple):
    """What an update and the policy compute with: matrices in the compute dtype."""

    nets: Nets
    slow: ScalarHead
    kernels: Kernels  # of nets.dyn, for acting


class PolicyParams(NamedTuple):
    """The part of the weights that acting needs."""

    enc: Encoder
    dyn: RSSM
    kernels: Kernels
    policy: Policy


class Dreamer(Model):
    """config: the whole resolved config; the networks see config.agent.

    Between updates parameters, slow value and optimizer state are one vector each.
    """

    def __init__(
        self,
        obs_space: Spaces,
        act_space: Spaces,
        config: elements.Config,
        devices: Devices | None = None,
    ):
        check_limits(config)
        self.devices = devices or Devices()
        self.spaces = {**obs_space, **act_space}
        self.inputs = Inputs(obs_space)
        self.actions = Actions(act_space)
        self.config = config.agent
        self.backprop = config.agent.policy_grad == 'backprop'
        check_policy_grad(self.backprop, self.actions)
        self.dtype = jnp.dtype(config.jax.compute_dtype)
        self.loops = choose_loops(config, self.actions, self.devices)
        self.context = config.replay_context
        self.prioritized = config.replay.fracs.priority > 0
        self.encoded = (*self.inputs.images, *self.inputs.vectors)
        self.policy_keys = (*self.encoded, 'is_first')
        self.batch_keys = (
            *self.policy_keys,
            *('reward', 'is_last', 'is_terminal', 'consec'),
            *self.actions.spaces,
            *(self.latent_spaces if self.context else ()),
        )

    @property
    def latent_spaces(self) -> Spaces:
        return latents.latent_spaces(self.config.dyn, self.dtype)

    def init(self, key: jax.Array) -> dict[str, Any]:
        params = self._init_nets(key)
        return {
            'params': params,
            'slow': params.value,
            'opt': jax.tree.map(
                lambda x: self.layout.split(x) if x.ndim else x,
                self.optimizer.init(jnp.zeros(self.layout.size)),
            ),
            'ranges': Range(jnp.zeros(()), jnp.zeros(())),
        }

    @functools.cached_property
    def layout(self) -> Layout:
        """Where in one vector each parameter lies that the optimizer changes."""
        example = jax.eval_shape(self._init_nets, jax.random.key(0))
        return Layout(example, self.devices.fsdp)

    @functools.cached_property
    def slow_layout(self) -> Layout:
        """Layout of the slow value; the fast one, which comes last, has the same."""
        return Layout(jax.eval_shape(self._init_nets, jax.random.key(0)).value)

    @functools.cached_property
    def optimizer(self) -> optax.GradientTransformation:
        return make_optimizer(self.config.opt, self.layout, self._behavior_start)

    @property
    def _behavior_start(self) -> int:
        """Where policy and value, the last of the networks, begin in the layout."""
        example = jax.eval_shape(self._init_nets, jax.random.key(0))
        return self.layout.end - Layout((example.policy, example.value)).size

    def _init_nets(self, key: jax.Array) -> Nets:
        make = lambda init: Nets(init, self.inputs, self.actions, self.config)
        return nets.build(make, key)

    def pack(self, tree: dict[str, Any]) -> dict[str, Any]:
        is_nets = lambda x: isinstance(x, Nets)
        join = lambda x: self.layout.join(x) if is_nets(x) else x
        return {
            **jax.tree.map(join, tree, is_leaf=is_nets),
            'slow': self.slow_layout.join(tree['slow']),
        }

    def unpack(self, state: dict[str, Any]) -> dict[str, Any]:
        split = lambda x: self.layout.split(x) if x.ndim else x
        return {
            **jax.tree.map(split, {k: state[k] for k in ('params', 'opt', 'ranges')}),
            'slow': self.slow_layout.split(state['slow']),
        }

    def large(self, state: dict[str, Any]) -> Any:
        # The slow value is small, and most of it is needed everywhere anyway.
        return jax.tree.map(lambda x: x.shape == (self.layout.size,), state)

    def weights(self, state: dict[str, Any]) -> Weights:
        params = self.layout.split(self.devices.gather(state['params']))
        slow = self.slow_layout.split(self.devices.gather(state['slow']))
        params, slow = self._cast((params, slow))
        return Weights(params, slow, params.dyn.kernels(self.dtype))

    # Acting

    def policy_params(self, weights: Weights) -> PolicyParams:
        params = weights.nets
        return PolicyParams(params.enc, params.dyn, weights.kernels, params.policy)

    def init_policy(self, batch: int) -> Carry:
        # Zeros of the right shapes need no parameters.
        dyn = self.config.dyn
        stoch = jnp.zeros((batch, dyn.stoch, dyn.classes), self.dtype)
        state = State(jnp.zeros((batch, dyn.deter), self.dtype), stoch)
        return Carry(state, self.actions.zeros(batch))

    def policy(
        self,
        params: PolicyParams,
        carry: Carry,
        obs: dict[str, jax.Array],
        key: jax.Array,
        greedy: bool,
    ) -> tuple[Carry, dict[str, jax.Array], dict[str, jax.Array]]:
        gumbel, noise = self.policy_noise(key, obs['is_first'].shape[0])
        state, dists = self.perceive(params, carry, obs, gumbel)
        acts = self.actions.pred(dists) if greedy else self.actions.sample(dists, noise)
        acts = self.actions.cast(acts)
        return Carry(state, acts), acts, latents.pack(state)

    def policy_noise(self, key: jax.Array, batch: int) -> tuple[jax.Array, Values]:
        """All that is random about acting: for the state and for the actions."""
        key_state, key_action = jax.random.split(key)
        gumbel = self._gumbel(key_state, (batch, 1))
        return gumbel, self.actions.noise(key_action, (batch,))

    def perceive(
        self,
        params: PolicyParams,
        carry: Carry,
        obs: dict[str, jax.Array],
        gumbel: jax.Array,
    ) -> tuple[State, dict[str, Any]]:
        """The state after one more observation, and the policy in it, by action."""
        enc, dyn, kernels, policy = params
        tokens = enc({k: obs[k] for k in self.encoded}, self.dtype)
        previous = self.actions.vector(carry.action, self.dtype)
        one = lambda x: x[:, None]
        recorded = (one(tokens), one(previous), one(obs['is_first']))
        states, _ = dyn.observe(carry.state, *recorded, gumbel, kernels)
        state = jax.tree.map(lambda x: x[:, 0], states)
        return state, policy(state.feat)

    # Learning

    init_train = init_policy

    def batch_shapes(self, batch: int, length: int) -> dict[str, jax.ShapeDtypeStruct]:
        """Latents are those of the context steps only, as our own replay serves."""
        steps = {**self.spaces, 'consec': elements.Space(np.int32)}
        latent = self.latent_spaces
        shapes = {}
        for name in self.batch_keys:
            space = latent[name] if name in latent else steps[name]
            time = self.context + (0 if name in latent else length)
            shape = (batch, time, *space.shape)
            shapes[name] = jax.ShapeDtypeStruct(shape, space.dtype)
        return shapes

    def train(
        self,
        state: dict[str, Any],
        weights: Weights,
        carry: Carry,
        batch: dict[str, jax.Array],
        key: jax.Array,
    ) -> TrainResult:
        grad = jax.value_and_grad(self.loss, has_aux=True)
        fixed = {'slow': weights.slow, 'ranges': state['ranges']}
        (total, aux), grads = grad(weights.nets, fixed, carry, batch, key)
        by_policy = grads.policy
        grads = self.devices.split(self.layout.join(grads))
        updates, opt = self.optimizer.update(grads, state['opt'], state['params'])
        params = optax.apply_updates(state['params'], updates)
        end, rate = self.layout.end, self.config.value.slow_rate
        fast = self.devices.gather(params[end - self.slow_layout.size : end])
        slow = optax.incremental_update(fast, state['slow'], rate)
        new = {'params': params, 'slow': slow, 'opt': opt, 'ranges': aux['ranges']}
        norms = {
            'opt/grad_norm': optax.tree.norm(grads),
            'opt/update_norm': optax.tree.norm(updates),
            'opt/param_norm': optax.tree.norm(params),
        }
        if self.backprop:
            norms['opt/policy_grad_norm'] = _norm(by_policy)
        losses = {k: aux['losses'][k] for k in sorted(aux['losses'], key=_loss_order)}
        losses |= {'total': total, 'gradient': norms['opt/grad_norm']}
        metrics = {**aux['metrics'], **norms, 'loss/total': total}
        return TrainResult(new, aux['carry'], losses, aux['replay'], metrics)

    def loss(
        self,
        params: Nets,
        state: dict[str, Any],
        carry: Carry,
        batch: dict[str, jax.Array],
        key: jax.Array,
    ) -> tuple[jax.Array, dict[str, Any]]:
        """The weighted sum of all losses, and what else a step produces.

        state: the slow value and the range of returns.
        """
        key_world, key_imag = jax.random.split(key)
        sequence = cut_context(batch, carry, self.context, params.dyn, self.dtype)
        states, losses, metrics = self.world_losses(params, sequence, key_world)
        replay = latents.pack(states)
        if self.prioritized:
            steps = [self._scale(k) * x for k, x in losses.items()]
            replay['priority'] = jnp.stack(steps).sum(0)
        more, ranges, imag_metrics = self.behavior_losses(
            params, state, states, sequence.batch, key_imag
        )
        losses |= more
        means = {k: x.mean() for k, x in losses.items()}
        total = jnp.stack([self._scale(k) * x for k, x in means.items()]).sum()
        last = jax.tree.map(lambda x: x[:, -1], (states, sequence.batch))
        action = {k: last[1][k] for k in carry.action}
        aux = {
            'carry': Carry(last[0], action),
            'losses': means,
            'ranges': ranges,
            'replay': replay,
            'metrics': {
                **{f'loss/{k}': x for k, x in means.items()},
                **metrics,
                **{f'imag/{k}': x for k, x in imag_metrics.items()},
            },
        }
        return total, sg(aux)

    def world_losses(
        self, params: Nets, sequence: Sequence, key: jax.Array
    ) -> tuple[State, dict[str, jax.Array], dict[str, jax.Array]]:
        """Posterior states [B, T], losses [B, T] by name, metrics."""
        batch, config = sequence.batch, self.config
        states, post, prior = self._posterior(params, sequence, key)
        target = 1 - batch['is_terminal'].astype(jnp.float32)
        losses = {
            'dyn': jnp.maximum(config.dyn.free_nats, post.detach().kl(prior)),
            'rep': jnp.maximum(config.dyn.free_nats, post.kl(prior.detach())),
            'rew': params.reward(states.feat).loss(batch['reward']),
            'con': params.cont(states.feat).loss(target * (1 - 1 / config.horizon)),
        }
        rec = params.dec.losses(params.dec(states), batch)
        losses |= {f'rec/{name}': x for name, x in rec.items()}
        metrics = {
            'dyn/post_entropy': post.entropy().mean(),
            'dyn/prior_entropy': prior.entropy().mean(),
        }
        return states, losses, metrics

    def behavior_losses(
        self,
        params: Nets,
        state: dict[str, Any],
        states: State,
        batch: dict[str, jax.Array],
        key: jax.Array,
    ) -> tuple[dict[str, jax.Array], Range, dict[str, jax.Array]]:
        """Policy and value losses, imagined from every state of the batch."""
        shape = states.deter.shape[:2]
        starts = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), sg(states))
        noise = self._imag_noise(key, shape)
        rows = shape[0] * shape[1]
        loop = self.loops.imagine(rows, len(noise[0])) if self.loops else None
        rollout, acts = behavior.imagine(
            sg(params.dyn), sg(params.policy), starts, noise, loop
        )
        feat = rollout.feat
        policy = params.policy(feat[:-1])
        scored, traced = None, None
        if self.backprop:
            scored = self.actions.discrete
            traced = self._traced(params, policy, (rollout, acts), noise)
        losses, ret, ranges, metrics = behavior.imagined_losses(
            policy,
            params.value(feat),
            state['slow'](feat[:-1]),
            sg(params.reward(feat).pred()),
            self._imagined_continue(params.cont(feat)),
            self.actions.logp(policy, acts, scored),
            state['ranges'],
            self.config,
            traced,
        )
        replayed = states.feat[:, :-1]
        losses['repval'], _ = behavior.replayed_value_loss(
            params.value(replayed),
            state['slow'](replayed),
            ret[0].reshape(shape),
            batch['reward'],
            batch['is_last'],
            batch['is_terminal'],
            self.config,
        )
        return losses, ranges, metrics

    def _imagined_continue(self, cont: outputs.Bernoulli) -> jax.Array:
        """Continue probability [H + 1, N] with the discount in it."""
        prob = sg(cont.prob())
        if not self.config.cont.hard:
            return prob
        return (prob > 0.5).astype(jnp.float32) * (1 - 1 / self.config.horizon)

    def _traced(
        self, params: Nets, policy: Any, rollout: Any, noise: Any
    ) -> tuple[jax.Array, jax.Array]:
        """Imagined reward and value [H + 1, N], differentiable by the policy alone."""
        states = behavior.through_model(
            params.dyn, self.actions, policy, rollout, noise
        )
        heads = sg((params.reward, params.value))
        reward, value = (head(states.feat).smooth_pred() for head in heads)
        return reward, value

    # Reporting

    def report(
        self,
        state: dict[str, Any],
        weights: Weights,
        carry: Carry,
        batch: dict[str, jax.Array],
        key: jax.Array,
    ) -> tuple[Carry, dict[str, jax.Array]]:
        key_loss, key_video = jax.random.split(key)
        params = weights.nets
        fixed = {'slow': weights.slow, 'ranges': state['ranges']}
        _, aux = self.loss(params, fixed, carry, batch, key_loss)
        sequence = cut_context(batch, carry, self.context, params.dyn, self.dtype)
        videos = self._open_loop(params, sequence, key_video)
        return aux['carry'], {**aux['metrics'], **videos}

    def _open_loop(
        self, params: Nets, sequence: Sequence, key: jax.Array
    ) -> dict[str, jax.Array]:
        """Sees the first half of some sequences and predicts the second."""
        count = min(self.config.report_videos, len(sequence.start.deter))
        if not count:
            return {}
        sequence = jax.tree.map(lambda x: x[:count], sequence)
        seen = sequence.batch['is_first'].shape[1] // 2
        key_seen, key_rest = jax.random.split(key)
        recorded = (sequence.batch, sequence.previous)
        batch, previous = jax.tree.map(lambda x: x[:, :seen], recorded)
        known, _, _ = self._posterior(
            params, Sequence(batch, previous, sequence.start), key_seen
        )
        previous = jax.tree.map(lambda x: x[:, seen:], sequence.previous)
        action = self.actions.vector(previous, self.dtype)
        start = jax.tree.map(lambda x: x[:, -1], known)
        noise = self._gumbel(key_rest, action.shape[:2])
        imagined = params.dyn.imagine(start, action, noise)
        join = lambda a, b: jnp.concatenate([a, b], 1)
        outs = params.dec(jax.tree.map(join, known, imagined))
        return {
            f'open_loop/{name}': open_loop_video(
                sequence.batch[name], outs[name].pred(), seen
            )
            for name in self.inputs.images
        }

    # Shared pieces

    def _posterior(self, params: Nets, sequence: Sequence, key: jax.Array) -> Any:
        """States [B, T] along recorded steps, with posterior and prior."""
        batch = sequence.batch
        tokens = params.enc({k: batch[k] for k in self.encoded}, self.dtype)
        action = self.actions.vector(sequence.previous, self.dtype)
        noise = self._gumbel(key, action.shape[:2])
        recorded = (tokens, action, batch['is_first'], noise)
        loops = self.loops.observe(*action.shape[:2]) if self.loops else None
        states, logit = params.dyn.observe(sequence.start, *recorded, loops=loops)
        prior = params.dyn.prior_of(states.deter)
        return states, params.dyn.dist(logit), params.dyn.dist(prior)

    def _imag_noise(self, key: jax.Array, shape: tuple[int, ...]) -> Any:
        key_state, key_action = jax.random.split(key)
        lead = (self.config.imag_length, shape[0] * shape[1])
        return self._gumbel(key_state, lead), self.actions.noise(key_action, lead)

    def _gumbel(self, key: jax.Array, lead: tuple[int, ...]) -> jax.Array:
        shape = (*lead, self.config.dyn.stoch, self.config.dyn.classes)
        return jax.random.gumbel(key, shape, jnp.float32)

    def _scale(self, name: str) -> float:
        return self.config.loss_scales[name.split('/')[0]]

    def _cast(self, params: Any) -> Any:
        """Parameters in the compute dtype, cast once; norms stay in float32."""
        is_norm = lambda x: isinstance(x, nets.RMSNorm)
        cast = lambda x: x if is_norm(x) else x.astype(self.dtype)
        return jax.tree.map(cast, params, is_leaf=is_norm)


def _norm(tree: Any) -> jax.Array:
    return optax.tree.norm(jax.tree.map(lambda x: x.astype(jnp.float32), tree))


def _loss_order(name: str) -> int:
    return LOSS_ORDER.index(name.split('/')[0])
