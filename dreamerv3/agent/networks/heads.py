"""Heads: small networks from features to reward, continue, value and actions."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from embodied.jax import nets, outputs

from ..actions import Actions
from .inputs import flat_size, num_classes

__all__ = ['BinaryHead', 'Policy', 'ScalarHead']


class ScalarHead(eqx.Module):
    """Reward or value: feat [..., F] -> two-hot scalar, exactly 0 at first."""

    mlp: nets.MLP
    out: nets.Linear
    twohot: str = eqx.field(static=True)

    def __init__(self, init: nets.Init, inp: int, config: Any):
        self.mlp = nets.MLP(init, inp, config.units, config.layers)
        self.out = nets.Linear(init, config.units, config.bins, scale=0.0)
        self.twohot = config.twohot

    def __call__(self, feat: jax.Array) -> outputs.TwoHot:
        logits, bins = self.out(self.mlp(feat)), self.out.bias.shape[0]
        if self.twohot == 'symlog':
            return outputs.SymlogTwoHot(logits, outputs.symlog_bins(bins))
        return outputs.TwoHot(logits, outputs.symexp_bins(bins))


class BinaryHead(eqx.Module):
    """Continue: feat [..., F] -> Bernoulli [...]."""

    mlp: nets.MLP
    out: nets.Linear

    def __init__(self, init: nets.Init, inp: int, config: Any):
        self.mlp = nets.MLP(init, inp, config.units, config.layers)
        self.out = nets.Linear(init, config.units, 1)

    def __call__(self, feat: jax.Array) -> outputs.Bernoulli:
        return outputs.Bernoulli(self.out(self.mlp(feat))[..., 0])


class Policy(eqx.Module):
    """feat [..., F] -> one distribution per action key."""

    mlp: nets.MLP
    logits: dict[str, nets.Linear]
    means: dict[str, nets.Linear]
    stds: dict[str, nets.Linear]
    actions: Actions = eqx.field(static=True)
    unimix: float = eqx.field(static=True)
    minstd: float = eqx.field(static=True)
    maxstd: float = eqx.field(static=True)

    def __init__(self, init: nets.Init, inp: int, actions: Actions, config: Any):
        self.mlp = nets.MLP(init, inp, config.units, config.layers)
        self.actions, self.unimix = actions, config.unimix
        self.minstd, self.maxstd = config.minstd, config.maxstd
        self.logits, self.means, self.stds = {}, {}, {}
        for name, space in actions.spaces.items():
            shape = (config.units, flat_size(name, space))
            if space.discrete:
                self.logits[name] = nets.Linear(init, *shape, config.outscale)
            else:
                self.means[name] = nets.Linear(init, *shape, config.outscale)
                self.stds[name] = nets.Linear(init, *shape, config.outscale)

    def __call__(self, feat: jax.Array) -> dict[str, Any]:
        return self._dists(self.mlp(feat))

    def after(self, x: jax.Array) -> dict[str, Any]:
        """The same from the product of feat with the kernel of the first layer."""
        return self._dists(self.mlp.after(x))

    def _dists(self, x: jax.Array) -> dict[str, Any]:
        return {
            name: self._discrete(name, x) if space.discrete else self._normal(name, x)
            for name, space in self.actions.spaces.items()
        }

    def _discrete(self, name: str, x: jax.Array) -> outputs.Categorical:
        space = self.actions.spaces[name]
        shape = (*x.shape[:-1], *space.shape, num_classes(name, space))
        logits = self.logits[name](x).reshape(shape)
        return outputs.Categorical(logits, self.unimix, len(space.shape))

    def _normal(self, name: str, x: jax.Array) -> outputs.Normal:
        space = self.actions.spaces[name]
        shape = (*x.shape[:-1], *space.shape)
        mean = self.means[name](x).reshape(shape).astype(jnp.float32)
        std = self.stds[name](x).reshape(shape).astype(jnp.float32)
        std = (self.maxstd - self.minstd) * jax.nn.sigmoid(std + 2) + self.minstd
        return outputs.Normal(jnp.tanh(mean), std, len(space.shape))
