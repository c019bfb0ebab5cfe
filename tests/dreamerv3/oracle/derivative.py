"""Derivatives of the oracle by complex steps: exact to the last digits of a float64."""

import numpy as np

from .parameters import flatten, replace

__all__ = ['directional', 'gradient']

STEP = 1e-30  # its square vanishes, so there is no truncation error


def directional(function, params, name, direction):
    """Derivative of the scalar `function(params)` as tensor `name` moves."""
    value = flatten(params)[name]
    return function(replace(params, name, value + 1j * STEP * direction)).imag / STEP


def gradient(function, params, name):
    """All partial derivatives for one tensor, one evaluation each."""
    shape = flatten(params)[name].shape
    grad = np.zeros(shape)
    for index in np.ndindex(shape):
        direction = np.zeros(shape)
        direction[index] = 1
        grad[index] = directional(function, params, name, direction)
    return grad
