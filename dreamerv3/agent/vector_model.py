"""VectorModel: parameters, slow value and optimizer state as one vector each, and the
update that changes them. What is trained, and by which loss, is the algorithm's."""

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import elements
import jax
import jax.numpy as jnp
import optax

from embodied.core.errors import ConfigError
from embodied.jax import nets
from embodied.jax.devices import Devices
from embodied.jax.layout import Layout
from embodied.jax.model import Model, TrainResult
from embodied.jax.tree import Tree

from .networks.heads import ScalarHead
from .networks.rssm import Kernels
from .optimizer import Rates, make_optimizer
from .returns import Range

if TYPE_CHECKING:
    from .model import Nets

__all__ = ['VectorModel', 'Weights']

# Losses in the order in which a bad value spreads; JAX sorts dicts by their keys.
OWN = 'own'  # in the place of those of an own agent
LOSS_ORDER = ('dyn', 'rep', 'rec', 'rew', 'con', OWN, 'policy', 'value', 'repval')


class Weights(NamedTuple):
    """What an update and the policy compute with: matrices in the compute dtype."""

    nets: 'Nets'
    slow: ScalarHead
    kernels: Kernels  # of nets.dyn, for acting


class VectorModel(Model):
    """An algorithm adds make_nets and loss."""

    config: elements.Config  # the group `agent`
    devices: Devices
    dtype: Any  # that matrices are multiplied in

    def make_nets(self, init: nets.Init) -> 'Nets':
        raise NotImplementedError('make_nets(init) -> nets')

    def loss(
        self, params: 'Nets', state: dict[str, Any], carry: Any, batch: dict, key: Any
    ) -> tuple[jax.Array, dict[str, Any]]:
        raise NotImplementedError('loss(params, state, carry, batch, key) -> loss, aux')

    def rates(self, name: str) -> Rates:
        """How a parameter is trained; its name is as in checkpoints, without `params.`:
        dyn.gru.kernel, own.found.out.bias."""
        opt = self.config.opt
        if name.startswith(('policy.', 'value.')):
            lr, eps = opt.behavior_lr or opt.lr, opt.behavior_eps or opt.eps
            return Rates(lr, eps, opt.agc)
        return Rates(opt.lr, opt.eps, opt.agc)

    # The state between updates

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

    def pack(self, tree: dict[str, Any]) -> dict[str, Any]:
        kind = type(tree['params'])
        is_nets = lambda x: isinstance(x, kind)
        join = lambda x: self.layout.join(x) if is_nets(x) else x
        rest = {k: tree[k] for k in ('params', 'opt', 'ranges')}
        return {
            **jax.tree.map(join, rest, is_leaf=is_nets),
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

    @functools.cached_property
    def example(self) -> 'Nets':
        """Shapes of all that the optimizer changes."""
        return jax.eval_shape(self._init_nets, jax.random.key(0))

    @functools.cached_property
    def layout(self) -> Layout:
        """Where in one vector each parameter lies that the optimizer changes."""
        return Layout(self.example, self.devices.fsdp)

    @functools.cached_property
    def slow_layout(self) -> Layout:
        """Layout of the slow value; the fast one, which comes last, has the same."""
        last = Tree(self.example).names[-1]
        if not last.startswith('value.'):
            raise ConfigError(
                f'The networks of {type(self).__name__} end with {last!r}, and must '
                'end with the value: put what you add into `own` of Nets.'
            )
        return Layout(self.example.value)

    @functools.cached_property
    def optimizer(self) -> optax.GradientTransformation:
        rates = [self.rates(name) for name in Tree(self.example).names]
        return make_optimizer(self.config.opt, self.layout, rates)

    def _init_nets(self, key: jax.Array) -> 'Nets':
        return nets.build(self.make_nets, key)

    def _cast(self, params: Any) -> Any:
        """Parameters in the compute dtype, cast once; norms and what is a single number
        stay in float32."""
        is_norm = lambda x: isinstance(x, nets.RMSNorm)
        keeps = lambda x: is_norm(x) or not x.ndim
        cast = lambda x: x if keeps(x) else x.astype(self.dtype)
        return jax.tree.map(cast, params, is_leaf=is_norm)

    # The update

    def train(
        self,
        state: dict[str, Any],
        weights: Weights,
        carry: Any,
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
        if self.config.policy_grad == 'backprop':
            norms['opt/policy_grad_norm'] = _norm(by_policy)
        losses = {k: aux['losses'][k] for k in sorted(aux['losses'], key=_loss_order)}
        losses |= {'total': total, 'gradient': norms['opt/grad_norm']}
        metrics = {**aux['metrics'], **norms, 'loss/total': total}
        return TrainResult(new, aux['carry'], losses, aux['replay'], metrics)


def _norm(tree: Any) -> jax.Array:
    return optax.tree.norm(jax.tree.map(lambda x: x.astype(jnp.float32), tree))


def _loss_order(name: str) -> int:
    group = name.split('/')[0]
    return LOSS_ORDER.index(group if group in LOSS_ORDER else OWN)
