"""Harmony: learned weights of observation, reward and dynamics.

A scalar s for each of the three losses L, which are weighted means over the batch:

    total = sum L / exp(s) + log(1 + exp(s)), and the other losses as ever

docs/harmony.md says what for, and where its optimum is.
"""

import jax
import jax.numpy as jnp

from embodied.jax import nets

from ..model import Dreamer, Nets, Seen
from ..optimizer import Rates
from .additions import with_own

__all__ = ['Harmony']

NAME = 'harmony'  # of the parameters, and of the metrics


class Harmony(Dreamer):
    """Goes in front of another agent, whose losses it weighs."""

    def make_nets(self, init: nets.Init) -> Nets:
        scalars = {part: jnp.zeros((), jnp.float32) for part in self.balanced}
        return with_own(super().make_nets(init), NAME, scalars)

    @property
    def balanced(self) -> dict[str, tuple[str, ...]]:
        """Names of the losses that share a scalar; those without a weight have none.

        A loss of zero would drive its scalar to minus infinity.
        """
        # Beside redundancy reduction, a decoder looks on and has no part in the rest.
        observation = 'barlow' if self.config.representation == 'barlow' else 'rec'
        parts = {
            'observation': (observation,),
            'reward': ('rew',),
            'dynamics': ('dyn', 'rep'),
        }
        scales = self.loss_scales
        return {k: v for k, v in parts.items() if any(scales[x] for x in v)}

    def rates(self, name: str) -> Rates:
        rates = super().rates(name)
        if name.startswith(f'own.{NAME}.'):
            # Clipping by the parameter's norm would hold back what starts at zero.
            return rates._replace(lr=self.config.opt.harmony_lr, agc=0.0)
        return rates

    def total(self, params: Nets, means: dict[str, jax.Array]) -> jax.Array:
        scalars = params.own[NAME]
        part_of = {
            loss: part for part, names in self.balanced.items() for loss in names
        }

        def weighed(name: str, mean: jax.Array) -> jax.Array:
            part = part_of.get(name.split('/')[0])
            return mean * jnp.exp(-scalars[part]) if part else mean

        balanced = {name: weighed(name, mean) for name, mean in means.items()}
        price = sum(jax.nn.softplus(s) for s in scalars.values())
        return super().total(params, balanced) + price

    def world_losses(
        self, params: Nets, batch: dict[str, jax.Array], seen: Seen, key: jax.Array
    ) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
        losses, metrics = super().world_losses(params, batch, seen, key)
        for part, scalar in params.own[NAME].items():
            metrics[f'{NAME}/scalar/{part}'] = scalar
            metrics[f'{NAME}/weight/{part}'] = jnp.exp(-scalar)
        return losses, metrics
