"""DreamerV3 in float64 NumPy, written from its formulas: what agents are tested by.

Parameters are nested dicts with the names of the golden file, for example
`params['enc']['cnn0']['kernel']`; `evaluate` runs everything on dotted names.
"""

import numpy as np

from .derivative import directional, gradient
from .every_output import core_scalar, evaluate, wm_scalar
from .fresh import fresh
from .optimizer import optimize
from .parameters import Problem, count, flatten, nest, random_params, replace, shapes

__all__ = [
    'Problem',
    'core_scalar',
    'count',
    'directional',
    'evaluate',
    'flatten',
    'fresh',
    'gradient',
    'nest',
    'optimize',
    'random_params',
    'relative_error',
    'replace',
    'shapes',
    'wm_scalar',
]


def relative_error(value, expected) -> float:
    """Largest deviation, in units of the largest expected magnitude."""
    value, expected = np.asarray(value), np.asarray(expected)
    assert value.shape == expected.shape, (value.shape, expected.shape)
    error = np.abs(value - expected).max()
    return float(error and error / np.abs(expected).max())
