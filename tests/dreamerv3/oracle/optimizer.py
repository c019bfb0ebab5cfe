"""Optimizer of the oracle: LaProp with adaptive gradient clipping and warm-up."""

import numpy as np

__all__ = ['optimize']

LEARNING_RATE = 4e-5
WARMUP = 1000
CLIP = 0.3
MIN_NORM = 1e-3
BETA1 = 0.9
BETA2 = 0.999
EPS = 1e-20


def optimize(param, grads, lr=LEARNING_RATE, warmup=WARMUP):
    """One tensor and its successive gradients -> the tensor after each update.

    Moments are float64; the tensor is rounded to its own dtype after each update, as
    early updates are near the resolution of a float32.
    """
    second = np.zeros(param.shape)
    momentum = np.zeros(param.shape)
    history = []
    for count, grad in enumerate(grads):
        grad = _clip(np.float64(grad), np.float64(param))
        second = BETA2 * second + (1 - BETA2) * grad**2
        root = np.sqrt(second / (1 - BETA2 ** (count + 1)))
        momentum = BETA1 * momentum + (1 - BETA1) * grad / (root + EPS)
        rate = lr * min(1, count / warmup)
        update = -rate * momentum / (1 - BETA1 ** (count + 1))
        param = param + update.astype(param.dtype)
        history.append(param)
    return history


def _clip(grad, param):
    """Scales the gradient so that ||g|| <= CLIP * max(MIN_NORM, ||p||)."""
    norm = np.linalg.norm(grad)
    limit = CLIP * np.maximum(MIN_NORM, np.linalg.norm(param))
    return grad * limit / norm if norm > limit else grad
