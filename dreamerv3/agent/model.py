"""DreamerV3 as pure functions: one loss over world model, policy and value.

An own agent is a subclass of Dreamer; docs/change_the_algorithm.md says how.
"""

from typing import Any, NamedTuple

import elements
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from embodied.core.base import Spaces
from embodied.jax import nets, outputs
from embodied.jax.devices import Devices

from . import behavior
from .actions import Actions, Values
from .limits import check_limits, check_losses, check_policy_grad, check_scale
from .networks import latents
from .networks.decoder import Decoder
from .networks.encoder import Encoder
from .networks.heads import BinaryHead, Policy, ScalarHead
from .networks.inputs import Inputs
from .networks.kernels.fused import choose_loops
from .networks.rssm import RSSM, Kernels, State
from .replay_context import Carry, Sequence, cut_context
from .report import open_loop_video
from .returns import Range
from .vector_model import VectorModel, Weights

__all__ = ['Dreamer', 'Nets', 'PolicyParams', 'Seen']

BEHAVIOR = ('policy', 'value', 'repval')  # losses of policy and value

sg = jax.lax.stop_gradient


class Nets(eqx.Module):
    """Everything the optimizer changes. Policy and value come last."""

    enc: Encoder
    dyn: RSSM
    dec: Decoder
    reward: ScalarHead
    cont: BinaryHead
    own: dict[str, Any]  # what an own agent adds, by name
    policy: Policy
    value: ScalarHead


class Seen(NamedTuple):
    """What the model makes of recorded steps, [B, T, ...]."""

    states: State
    tokens: jax.Array  # of the encoder
    post: outputs.Categorical
    prior: outputs.Categorical


class PolicyParams(NamedTuple):
    """The part of the weights that acting needs."""

    enc: Encoder
    dyn: RSSM
    kernels: Kernels
    policy: Policy


class Dreamer(VectorModel):
    """config: the whole resolved config; the networks see config.agent."""

    options: dict[str, Any] = {}  # of an own agent, which reads them as self.config.own

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
        # Without their losses there is nothing to imagine for policy and value.
        self.learns_behavior = any(self.scale(name) for name in BEHAVIOR)
        self.backprop = config.agent.policy_grad == 'backprop'
        check_policy_grad(self.backprop, self.actions)
        self.dtype = jnp.dtype(config.jax.compute_dtype)
        self.loops = choose_loops(
            config, self.actions, self.devices, lambda: self.example
        )
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

    @property
    def feat_size(self) -> int:
        """Width of `State.feat`, which heads look at."""
        dyn = self.config.dyn
        return dyn.deter + dyn.stoch * dyn.classes

    # Networks

    def make_nets(self, init: nets.Init) -> Nets:
        """All networks. An own agent adds to `own`, or replaces a field of another."""
        config, feat = self.config, self.feat_size
        deter = config.dyn.deter
        enc = self.make_encoder(init)
        return Nets(
            enc=enc,
            dyn=RSSM(init, enc.size, self.actions.size, config.dyn),
            dec=Decoder(init, self.inputs, deter, feat - deter, config.dec),
            reward=ScalarHead(init, feat, config.reward),
            cont=BinaryHead(init, feat, config.cont),
            policy=Policy(init, feat, self.actions, config.policy),
            value=ScalarHead(init, feat, config.value),
            own={},
        )

    def make_encoder(self, init: nets.Init) -> Any:
        """(observations by key, dtype) -> tokens [..., size], with `size` a field."""
        return Encoder(init, self.inputs, self.config.enc)

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
        seen, batch = self.observe(params, sequence, key_world), sequence.batch
        key_own = jax.random.fold_in(key_world, 0)
        losses, metrics = self.world_losses(params, batch, seen, key_own)
        check_losses(losses, metrics, batch['reward'].shape)
        replay = self.to_replay(seen, losses)
        ranges = state['ranges']
        more: dict[str, jax.Array] = {}
        imag_metrics: dict[str, jax.Array] = {}
        if self.learns_behavior:
            more, ranges, imag_metrics = self.behavior_losses(
                params, state, seen.states, batch, key_imag
            )
        means = {k: x.mean() for k, x in (losses | more).items()}
        last = jax.tree.map(lambda x: x[:, -1], (seen.states, batch))
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
        return self.total(params, means), sg(aux)

    @property
    def loss_scales(self) -> dict[str, float]:
        """Weights of the losses, by their name up to a slash."""
        return dict(self.config.loss_scales)

    def scale(self, name: str) -> float:
        group, scales = name.split('/')[0], self.loss_scales
        check_scale(group, scales)
        return scales[group]

    def total(self, params: Nets, means: dict[str, jax.Array]) -> jax.Array:
        """What is minimized, from the mean of each loss over the whole batch."""
        return jnp.stack([self.scale(k) * x for k, x in means.items()]).sum()

    def to_replay(
        self, seen: Seen, losses: dict[str, jax.Array]
    ) -> dict[str, jax.Array]:
        """What each step has to tell replay, [B, T, ...]: latents, and its priority."""
        entries = latents.pack(seen.states)
        if self.prioritized:
            steps = [self.scale(k) * x for k, x in losses.items()]
            entries['priority'] = jnp.stack(steps).sum(0)
        return entries

    def observe(self, params: Nets, sequence: Sequence, key: jax.Array) -> Seen:
        """Follows recorded steps."""
        batch = sequence.batch
        tokens = params.enc({k: batch[k] for k in self.encoded}, self.dtype)
        action = self.actions.vector(sequence.previous, self.dtype)
        noise = self._gumbel(key, action.shape[:2])
        recorded = (tokens, action, batch['is_first'], noise)
        loops = self.loops.observe(*action.shape[:2]) if self.loops else None
        states, logit = params.dyn.observe(sequence.start, *recorded, loops=loops)
        post, prior = params.dyn.dist(logit), params.dyn.prior_of(states.deter)
        return Seen(states, tokens, post, params.dyn.dist(prior))

    def world_losses(
        self, params: Nets, batch: dict[str, jax.Array], seen: Seen, key: jax.Array
    ) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
        """Losses [B, T] and metrics [] by name. key: for what is random in them."""
        config, (states, _, post, prior) = self.config, seen
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
        return losses, metrics

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
        entries = self.report_entries(params, sequence, key_video)
        return aux['carry'], {**aux['metrics'], **entries}

    def report_entries(
        self, params: Nets, sequence: Sequence, key: jax.Array
    ) -> dict[str, jax.Array]:
        """What reports have beside the metrics of `loss`: videos, in which the model
        sees the first half of some sequences and predicts the second."""
        count = min(self.config.report_videos, len(sequence.start.deter))
        if not count:
            return {}
        sequence = jax.tree.map(lambda x: x[:count], sequence)
        seen = sequence.batch['is_first'].shape[1] // 2
        key_seen, key_rest = jax.random.split(key)
        recorded = (sequence.batch, sequence.previous)
        batch, previous = jax.tree.map(lambda x: x[:, :seen], recorded)
        known = self.observe(
            params, Sequence(batch, previous, sequence.start), key_seen
        ).states
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
            if name in outs
        }

    # Shared pieces

    def _imag_noise(self, key: jax.Array, shape: tuple[int, ...]) -> Any:
        key_state, key_action = jax.random.split(key)
        lead = (self.config.imag_length, shape[0] * shape[1])
        return self._gumbel(key_state, lead), self.actions.noise(key_action, lead)

    def _gumbel(self, key: jax.Array, lead: tuple[int, ...]) -> jax.Array:
        shape = (*lead, self.config.dyn.stoch, self.config.dyn.classes)
        return jax.random.gumbel(key, shape, jnp.float32)
