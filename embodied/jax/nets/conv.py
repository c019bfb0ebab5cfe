"""Convolutions over images [N, H, W, C], also after upsampling and before pooling."""

import functools
from typing import Literal, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .init import Init
from .norm import RMSNorm

__all__ = ['Conv', 'ConvLayer', 'Resize']

WIDTH = 5  # every convolution of the agent is 5x5
FEW_CHANNELS = 8  # fewer than this leave matrix units mostly idle

Resize: TypeAlias = Literal['none', 'up', 'down']


class Conv(eqx.Module):
    """5x5 convolution, stride 1, same padding, in one of three forms:

    none: [N, H, W, inp] -> [N, H, W, out]
    up: of the input after nearest x2 upsampling -> [N, 2H, 2W, out]
    down: with a 2x2 max-pool of the output -> [N, H / 2, W / 2, out]

    kernel: [5, 5, inp, out]
    """

    kernel: jax.Array
    bias: jax.Array
    resize: Resize = eqx.field(static=True)

    def __init__(self, init: Init, inp: int, out: int, resize: Resize = 'none'):
        shape = (WIDTH, WIDTH, inp, out)
        self.kernel = init.kernel(shape, WIDTH * WIDTH * inp)
        self.bias = jnp.zeros(out, jnp.float32)
        self.resize = resize

    def __call__(self, x: jax.Array) -> jax.Array:
        forms = {'none': conv, 'up': upsampled_conv, 'down': pooled_conv}
        out = forms[self.resize](x, self.kernel.astype(x.dtype))
        return out + self.bias.astype(x.dtype)


class ConvLayer(eqx.Module):
    """Convolution, norm, SiLU."""

    conv: Conv
    norm: RMSNorm

    def __init__(self, init: Init, inp: int, out: int, resize: Resize = 'none'):
        self.conv = Conv(init, inp, out, resize)
        self.norm = RMSNorm(out)

    def __call__(self, x: jax.Array) -> jax.Array:
        return jax.nn.silu(self.norm(self.conv(x)))


def conv(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """x [N, H, W, I], kernel [k, k, I, O] -> [N, H, W, O], same padding."""
    return jax.lax.conv_general_dilated(
        x, kernel, (1, 1), 'SAME', dimension_numbers=('NHWC', 'HWIO', 'NHWC')
    )


def upsampled_conv(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """conv(nearest_x2(x), kernel) [N, 2H, 2W, O], computed at the low resolution.

    Output pixel 2y + p sees input row y + floor((p + k - 2) / 2) through tap k, so
    the five taps of each phase p fall onto three rows: summing the taps that share a
    row gives four 3x3 kernels, 9/25 of the work.
    """
    taps = _phase_taps()
    phases = jnp.einsum('pak,qbl,klio->abipqo', taps, taps, kernel)
    inp, out = kernel.shape[2:]
    y = conv(x, phases.reshape(3, 3, inp, 4 * out).astype(x.dtype))
    n, h, w, _ = y.shape
    y = y.reshape(n, h, w, 2, 2, out).transpose(0, 1, 3, 2, 4, 5)
    return y.reshape(n, 2 * h, 2 * w, out)


def _phase_taps() -> np.ndarray:
    """[phase, row, tap] float32: 1 where the tap of that phase falls onto that row."""
    phase, tap = np.arange(2)[:, None], np.arange(WIDTH)[None, :]
    row = (phase + tap - WIDTH // 2) // 2 + 1
    return (row[:, None, :] == np.arange(3)[None, :, None]).astype(np.float32)


def pooled_conv(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """2x2 max-pool of conv(x, kernel) -> [N, H / 2, W / 2, O].

    Few channels use the hardware badly. Then each 2x2 square of pixels becomes one
    pixel with all their channels, and so does the output: a 3x3 convolution from 4 I
    to 4 O channels, whose pool is a maximum over channels. It is half as much work
    again, done several times as fast.
    """
    n, h, w, inp = x.shape
    out = kernel.shape[-1]
    if inp >= FEW_CHANNELS:
        y = conv(x, kernel).reshape(n, h // 2, 2, w // 2, 2, out)
        return _largest(y, (2, 4))
    taps = _square_taps()
    squared = jnp.einsum('aipk,bjql,klco->abijcpqo', taps, taps, kernel)
    squared = squared.reshape(3, 3, 4 * inp, 4 * out).astype(x.dtype)
    squares = x.reshape(n, h // 2, 2, w // 2, 2, inp).transpose(0, 1, 3, 2, 4, 5)
    y = conv(squares.reshape(n, h // 2, w // 2, 4 * inp), squared)
    return _largest(y.reshape(n, h // 2, w // 2, 2, 2, out), (3, 4))


def _square_taps() -> np.ndarray:
    """[row of squares, row within it, output row within its square, tap] float32."""
    row, inner, outer = np.ogrid[:3, :2, :2]
    tap = 2 * row + inner - outer
    return (tap[..., None] == np.arange(WIDTH)).astype(np.float32)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _largest(x: jax.Array, axes: tuple[int, int]) -> jax.Array:
    """Maximum over two axes of length 2; the first of equals gets the gradient."""
    return x.max(axes)


def _largest_forward(x, axes):
    index = lambda x, i, axis: jax.lax.index_in_dim(x, i, axis, keepdims=False)
    halves = [index(x, i, axes[1]) for i in range(2)]
    a, b, c, d = (index(x, i, axes[0]) for i in range(2) for x in halves)
    largest = jnp.maximum(jnp.maximum(a, b), jnp.maximum(c, d))
    # One byte per pixel is all that the backward pass has to read.
    which = jnp.where(a == largest, 0, jnp.where(b == largest, 1, 2 + (c != largest)))
    return largest, which.astype(jnp.int8)


def _largest_backward(axes, which, grad):
    shape = [2 if axis in axes else 1 for axis in range(which.ndim + 2)]
    number = np.arange(4, dtype=np.int8).reshape(shape)
    which, grad = (jnp.expand_dims(x, axes) for x in (which, grad))
    return (jnp.where(which == number, grad, 0),)


_largest.defvjp(_largest_forward, _largest_backward)
