"""Flops: multiplications and additions of a program, counted in its traced form.

Matrix products and convolutions only, each times the trips of the loops around it. What
a compiler reports counts the body of a loop once.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax

__all__ = ['count_flops']


def count_flops(function: Callable[..., Any], *args: Any) -> int:
    """Operations of one call with such arguments, which may be shapes."""
    return _count(jax.make_jaxpr(function)(*args).jaxpr)


def _count(jaxpr: Any) -> int:
    total = 0
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name == 'dot_general':
            total += _product(equation)
        elif name == 'conv_general_dilated':
            total += _convolution(equation)
        else:
            trips = equation.params['length'] if name == 'scan' else 1
            total += trips * sum(map(_count, _inner(equation.params)))
    return total


def _product(equation: Any) -> int:
    (contracted, _), _ = equation.params['dimension_numbers']
    shape = equation.invars[0].aval.shape
    inner = math.prod(shape[axis] for axis in contracted)
    return 2 * inner * math.prod(equation.outvars[0].aval.shape)


def _convolution(equation: Any) -> int:
    """Taps that read padding are counted, as the hardware computes them."""
    numbers = equation.params['dimension_numbers']
    kernel = equation.invars[1].aval.shape
    taps = math.prod(kernel) // kernel[numbers.rhs_spec[0]]
    return 2 * taps * math.prod(equation.outvars[0].aval.shape)


def _inner(params: dict[str, Any]) -> Iterator[Any]:
    """The programs within an operation; of several branches all."""
    for value in params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            item = getattr(item, 'jaxpr', item)
            if hasattr(item, 'eqns'):
                yield item
