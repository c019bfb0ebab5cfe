"""Affine maps: dense, and in independent blocks."""

import equinox as eqx
import jax
import jax.numpy as jnp

from .init import Init

__all__ = ['BlockLinear', 'Linear', 'multiply']


class Linear(eqx.Module):
    """[..., inp] -> [..., out]."""

    kernel: jax.Array
    bias: jax.Array

    def __init__(self, init: Init, inp: int, out: int, scale: float = 1.0):
        self.kernel = init.kernel((inp, out), inp, scale)
        self.bias = jnp.zeros(out, jnp.float32)

    def __call__(self, x: jax.Array) -> jax.Array:
        return x @ self.kernel.astype(x.dtype) + self.bias.astype(x.dtype)


class BlockLinear(eqx.Module):
    """[..., inp] -> [..., out], block g of the output sees only block g of the input.

    kernel: [blocks, inp / blocks, out / blocks]
    """

    kernel: jax.Array
    bias: jax.Array

    def __init__(self, init: Init, inp: int, out: int, blocks: int):
        shape = (blocks, inp // blocks, out // blocks)
        self.kernel = init.kernel(shape, inp)
        self.bias = jnp.zeros(out, jnp.float32)

    def __call__(self, x: jax.Array) -> jax.Array:
        return block_matmul(x, self.kernel) + self.bias.astype(x.dtype)


def multiply(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """x [..., i] and kernel [i, o], or x [..., G * i] and kernel [G, i, o]."""
    return x @ kernel if kernel.ndim == 2 else block_matmul(x, kernel)


def block_matmul(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """x [..., G * i], kernel [G, i, o] -> [..., G * o]."""
    blocks = x.reshape(-1, kernel.shape[0], kernel.shape[1])
    axes = ((2,), (1,)), ((1,), (0,))
    out = jax.lax.dot_general(blocks, kernel.astype(x.dtype), axes)  # [G, N, o]
    return out.swapaxes(0, 1).reshape(*x.shape[:-1], -1)
