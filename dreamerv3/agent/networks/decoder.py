"""Decoder: predicts the observations of a step from the model's state."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from embodied.core.errors import ConfigError
from embodied.jax import nets, outputs

from .inputs import Inputs, flat_size
from .rssm import State, flatten

__all__ = ['Decoder']


class Decoder(eqx.Module):
    """State [..., D], [..., S, C] -> one output with `loss(obs[key])` per key."""

    mlp: nets.MLP | None
    vectors: dict[str, nets.Linear]
    image: 'ImageDecoder | None'
    inputs: Inputs = eqx.field(static=True)

    def __init__(
        self, init: nets.Init, inputs: Inputs, deter: int, flat: int, config: Any
    ):
        self.inputs = inputs
        self.mlp, self.vectors, self.image = None, {}, None
        if inputs.vectors:
            self.mlp = nets.MLP(init, flat + deter, config.units, config.layers)
            self.vectors = {
                name: nets.Linear(init, config.units, flat_size(name, space))
                for name, space in inputs.vectors.items()
            }
        if inputs.images:
            self.image = ImageDecoder(init, inputs, deter, flat, config)

    def __call__(self, state: State) -> dict[str, Any]:
        lead = state.deter.shape[:-1]
        outs: dict[str, Any] = {}
        if self.mlp is not None:
            x = self.mlp(jnp.concatenate([flatten(state.stoch), state.deter], -1))
            for name, linear in self.vectors.items():
                outs[name] = self._vector(name, linear(x), lead)
        if self.image is not None:
            pixels = self.image(state)
            start = 0
            for name, space in self.inputs.images.items():
                stop = start + space.shape[-1]
                outs[name] = outputs.SquaredError(pixels[..., start:stop], 3)
                start = stop
        return outs

    def _vector(self, name: str, x: jax.Array, lead: tuple[int, ...]) -> Any:
        space = self.inputs.vectors[name]
        if space.discrete:
            x = x.reshape(*lead, *space.shape, self.inputs.classes(name))
            return outputs.Categorical(x, event_rank=len(space.shape))
        x = x.reshape(*lead, *space.shape)
        return outputs.SymlogSquaredError(x, len(space.shape))

    def losses(
        self, outs: dict[str, Any], obs: dict[str, jax.Array]
    ) -> dict[str, jax.Array]:
        """Reconstruction loss [...] of each key, summed over its elements."""
        losses = {}
        for name, out in outs.items():
            target = obs[name]
            if name in self.inputs.images:
                target = target.astype(jnp.float32) / 255
            losses[name] = out.loss(target)
        return losses


class ImageDecoder(eqx.Module):
    """State -> pixels [..., H, W, channels] in 0..1.

    The smallest map is the sum of a block-linear layer on deter, in which each block
    gives a group of channels, and of two layers on stoch; then each stage doubles it.
    """

    from_deter: nets.BlockLinear
    from_stoch: tuple[nets.Layer, nets.Linear]
    norm: nets.RMSNorm
    stages: tuple[nets.ConvLayer, ...]
    out: nets.Conv
    shape: tuple[int, int, int] = eqx.field(static=True)

    def __init__(
        self, init: nets.Init, inputs: Inputs, deter: int, flat: int, config: Any
    ):
        depths = [m * config.depth for m in reversed(config.mults)]
        if depths[0] % config.blocks or deter % config.blocks:
            raise ConfigError(
                f'agent.dec.blocks={config.blocks} must divide the channels of the '
                f'smallest map, depth * mults[-1] = {depths[0]}, and '
                f'agent.dyn.deter={deter}. Change one of them.'
            )
        self.shape = (*inputs.smallest_map(config.mults), depths[0])
        size = int(np.prod(self.shape))
        self.from_deter = nets.BlockLinear(init, deter, size, config.blocks)
        self.from_stoch = (
            nets.Layer(init, flat, 2 * config.units),
            nets.Linear(init, 2 * config.units, size),
        )
        self.norm = nets.RMSNorm(depths[0])
        self.stages = tuple(
            nets.ConvLayer(init, i, o, 'up')
            for i, o in zip(depths[:-1], depths[1:], strict=True)
        )
        self.out = nets.Conv(init, depths[-1], inputs.channels, 'up')

    def __call__(self, state: State) -> jax.Array:
        lead = state.deter.shape[:-1]
        x = self._map_of_deter(state.deter) + self._map_of_stoch(state.stoch)
        x = jax.nn.silu(self.norm(x)).reshape(-1, *self.shape)
        for stage in self.stages:
            x = stage(x)
        x = jax.nn.sigmoid(self.out(x).astype(jnp.float32))
        return x.reshape(*lead, *x.shape[1:])

    def _map_of_deter(self, deter: jax.Array) -> jax.Array:
        height, width, channels = self.shape
        blocks = self.from_deter.kernel.shape[0]
        x = self.from_deter(deter)
        x = x.reshape(-1, blocks, height, width, channels // blocks)
        x = jnp.moveaxis(x, 1, -2)
        return x.reshape(*deter.shape[:-1], *self.shape)

    def _map_of_stoch(self, stoch: jax.Array) -> jax.Array:
        layer, linear = self.from_stoch
        x = linear(layer(flatten(stoch)))
        return x.reshape(*stoch.shape[:-2], *self.shape)
