"""Convolutions over images [N, H, W, C], also after upsampling."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .init import Init
from .norm import RMSNorm

__all__ = ['Conv', 'ConvLayer', 'max_pool']

WIDTH = 5  # every convolution of the agent is 5x5


class Conv(eqx.Module):
    """5x5 convolution, stride 1, same padding; optionally of the x2 upsampled input.

    kernel: [5, 5, inp, out]
    """

    kernel: jax.Array
    bias: jax.Array
    upsample: bool = eqx.field(static=True)

    def __init__(self, init: Init, inp: int, out: int, upsample: bool = False):
        shape = (WIDTH, WIDTH, inp, out)
        self.kernel = init.kernel(shape, WIDTH * WIDTH * inp)
        self.bias = jnp.zeros(out, jnp.float32)
        self.upsample = upsample

    def __call__(self, x: jax.Array) -> jax.Array:
        kernel = self.kernel.astype(x.dtype)
        out = upsampled_conv(x, kernel) if self.upsample else conv(x, kernel)
        return out + self.bias.astype(x.dtype)


class ConvLayer(eqx.Module):
    """Convolution, optional 2x2 max-pool, norm, SiLU."""

    conv: Conv
    norm: RMSNorm
    pool: bool = eqx.field(static=True)

    def __init__(
        self,
        init: Init,
        inp: int,
        out: int,
        pool: bool = False,
        upsample: bool = False,
    ):
        self.conv = Conv(init, inp, out, upsample)
        self.norm = RMSNorm(out)
        self.pool = pool

    def __call__(self, x: jax.Array) -> jax.Array:
        x = self.conv(x)
        if self.pool:
            x = max_pool(x)
        return jax.nn.silu(self.norm(x))


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


def max_pool(x: jax.Array) -> jax.Array:
    """[N, H, W, C] -> [N, H / 2, W / 2, C], the largest of each 2x2 square."""
    n, h, w, c = x.shape
    return x.reshape(n, h // 2, 2, w // 2, 2, c).max((2, 4))
