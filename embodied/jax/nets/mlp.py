"""Fully connected layers with norm and activation."""

import equinox as eqx
import jax

from .init import Init
from .linear import Linear
from .norm import RMSNorm

__all__ = ['MLP', 'Layer']


class Layer(eqx.Module):
    """Linear, norm, SiLU."""

    linear: Linear
    norm: RMSNorm

    def __init__(self, init: Init, inp: int, out: int):
        self.linear = Linear(init, inp, out)
        self.norm = RMSNorm(out)

    def __call__(self, x: jax.Array) -> jax.Array:
        return jax.nn.silu(self.norm(self.linear(x)))

    def after(self, x: jax.Array) -> jax.Array:
        """The rest of the layer, from the product of its input with its kernel."""
        return jax.nn.silu(self.norm(x + self.linear.bias.astype(x.dtype)))


class MLP(eqx.Module):
    """A stack of layers of one width: [..., inp] -> [..., units]."""

    layers: tuple[Layer, ...]

    def __init__(self, init: Init, inp: int, units: int, layers: int):
        widths = [inp, *[units] * layers]
        self.layers = tuple(
            Layer(init, i, o) for i, o in zip(widths[:-1], widths[1:], strict=True)
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        return self._rest(self.layers[0](x))

    def after(self, x: jax.Array) -> jax.Array:
        """The same from the product of the input with the first layer's kernel."""
        return self._rest(self.layers[0].after(x))

    def _rest(self, x: jax.Array) -> jax.Array:
        for layer in self.layers[1:]:
            x = layer(x)
        return x
