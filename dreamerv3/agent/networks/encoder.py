"""Encoder: turns the observations of one step into a vector of tokens."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from embodied.jax import nets, outputs

from .inputs import Inputs

__all__ = ['Encoder']


class Encoder(eqx.Module):
    """Observations [..., *shape] of every key -> tokens [..., size].

    Tokens are [vector part, image part]; either may be missing.
    """

    mlp: nets.MLP | None
    cnn: tuple[nets.ConvLayer, ...]
    inputs: Inputs = eqx.field(static=True)
    symlog: bool = eqx.field(static=True)
    size: int = eqx.field(static=True)

    def __init__(self, init: nets.Init, inputs: Inputs, config: Any):
        self.inputs = inputs
        self.symlog = config.symlog
        self.mlp, self.cnn, self.size = None, (), 0
        if inputs.vectors:
            width = inputs.vector_size
            self.mlp = nets.MLP(init, width, config.units, config.layers)
            self.size += config.units
        if inputs.images:
            channels = [inputs.channels, *(m * config.depth for m in config.mults)]
            self.cnn = tuple(
                nets.ConvLayer(init, i, o, 'down')
                for i, o in zip(channels[:-1], channels[1:], strict=True)
            )
            height, width = inputs.smallest_map(config.mults)
            self.size += height * width * channels[-1]

    def __call__(self, obs: dict[str, jax.Array], dtype: Any) -> jax.Array:
        lead = next(iter(obs.values())).shape[: self.inputs.lead_rank(obs)]
        parts = []
        if self.mlp is not None:
            parts.append(self.mlp(self._vectors(obs, lead).astype(dtype)))
        if self.cnn:
            parts.append(self._images(obs, lead, dtype))
        return jnp.concatenate(parts, -1)

    def _vectors(self, obs: dict[str, jax.Array], lead: tuple[int, ...]) -> jax.Array:
        parts = []
        for name, space in self.inputs.vectors.items():
            value = obs[name]
            if space.discrete:
                index = value.astype(jnp.int32)
                value = jax.nn.one_hot(index, self.inputs.classes(name))
            elif self.symlog:
                value = outputs.symlog(value.astype(jnp.float32))
            parts.append(value.astype(jnp.float32).reshape(*lead, -1))
        return jnp.concatenate(parts, -1)

    def _images(
        self, obs: dict[str, jax.Array], lead: tuple[int, ...], dtype: Any
    ) -> jax.Array:
        images = [obs[name] for name in self.inputs.images]
        x = jnp.concatenate(images, -1).astype(dtype) / 255 - 0.5
        x = x.reshape(-1, *x.shape[len(lead) :])
        for layer in self.cnn:
            x = layer(x)
        return x.reshape(*lead, -1)
