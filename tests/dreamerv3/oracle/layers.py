"""Layers of the oracle: what a network is made of, on NumPy arrays.

Parameters are dicts with the entries `kernel`, `bias` and `scale`. Every function here
also works on complex numbers, so that a complex step through it gives derivatives.
"""

import numpy as np

__all__ = [
    'block_linear',
    'conv',
    'layer',
    'linear',
    'log_softmax',
    'max_pool',
    'mlp',
    'one_hot',
    'rms_norm',
    'sigmoid',
    'silu',
    'symexp',
    'symlog',
    'upsample',
]

NORM_EPS = 1e-4


def linear(p, x):
    """x: [..., in] -> [..., out]."""
    return x @ p['kernel'] + p['bias']


def block_linear(p, x):
    """x: [..., g * in] -> [..., g * out], one matrix per contiguous group."""
    blocks, size, _ = p['kernel'].shape
    x = x.reshape((*x.shape[:-1], blocks, size))
    x = np.einsum('...gi,gio->...go', x, p['kernel'])
    return x.reshape((*x.shape[:-2], -1)) + p['bias']


def rms_norm(p, x):
    """x / sqrt(mean(x^2) + eps) * scale, over the last axis."""
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + NORM_EPS) * p['scale']


def conv(p, x):
    """Same-padded convolution with stride 1, odd kernel. x: [N, H, W, in]."""
    rows, cols = p['kernel'].shape[:2]
    height, width = x.shape[1:3]
    x = np.pad(x, ((0, 0), (rows // 2,) * 2, (cols // 2,) * 2, (0, 0)))
    total = p['bias']
    for i in range(rows):
        for j in range(cols):
            total = total + x[:, i : i + height, j : j + width] @ p['kernel'][i, j]
    return total


def max_pool(x):
    """Largest of each 2x2 patch. x: [N, H, W, C] -> [N, H/2, W/2, C]."""
    n, height, width, channels = x.shape
    return x.reshape(n, height // 2, 2, width // 2, 2, channels).max((2, 4))


def upsample(x):
    """Repeats each pixel 2x2 times. x: [N, H, W, C] -> [N, 2H, 2W, C]."""
    return x.repeat(2, 1).repeat(2, 2)


def layer(p, name, x, apply=linear):
    """The affine map `name`, its norm `<name>norm`, SiLU."""
    return silu(rms_norm(p[f'{name}norm'], apply(p[name], x)))


def mlp(p, x):
    """Layers linear0, norm0, linear1, norm1, ..., as many as there are."""
    for index in range(len(p) // 2):
        x = silu(rms_norm(p[f'norm{index}'], linear(p[f'linear{index}'], x)))
    return x


def sigmoid(x):
    # The form with tanh neither overflows nor leaves the complex numbers.
    return 0.5 * (1 + np.tanh(0.5 * x))


def silu(x):
    return x * sigmoid(x)


def symlog(x):
    return np.sign(x) * np.log1p(np.abs(x))


def symexp(x):
    return np.sign(x) * np.expm1(np.abs(x))


def log_softmax(x):
    x = x - x.real.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def one_hot(index, classes):
    return np.eye(classes)[index]
