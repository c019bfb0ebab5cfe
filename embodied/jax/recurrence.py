"""Recurrence: a loop over time whose gradients are mostly taken outside of it.

Differentiating a scan saves dozens of intermediate arrays in every step, and adds up
the gradient of every parameter step by step. Here the forward loop saves the states
only. What is expensive in a step is then computed again for all steps in one go, with
large matrices; the backward loop uses it to find the gradients of the states; and from
these one more large step over all times gives the gradients of everything else.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import jax
import jax.numpy as jnp

__all__ = ['Loops', 'Memo', 'Sloped', 'compute', 'follow', 'scan', 'taken', 'unroll']

GPU_UNROLL = 8

# memo(name, function, x, *constants) is function(x, *constants), maybe known already.
# So is the slope of a `Sloped` one.
Memo: TypeAlias = Callable[..., jax.Array]
# step(memo, params, carry, x, fixed) -> carry, y
Step: TypeAlias = Callable[[Memo, Any, Any, Any, Any], tuple[Any, Any]]


class Sloped(Protocol):
    """A function that tells its derivative, of which most is computed in advance."""

    def __call__(self, x: jax.Array, *constants: Any) -> jax.Array:
        """The value."""

    def slope(self, x: jax.Array, *constants: Any) -> Any:
        """Whatever `pull` needs, for all steps at once."""

    def pull(self, slope: Any, grad: jax.Array) -> jax.Array:
        """The gradient of x from that of the value, step by step."""


def compute(name: str, function: Any, x: jax.Array, *constants: Any) -> jax.Array:
    """The memo that remembers nothing, to use a step outside of a loop."""
    return function(x, *constants)


def unroll(length: int) -> int:
    """Steps per iteration of a compiled loop, a divisor of its length.

    Launching costs time on a GPU, compiling on a CPU.
    """
    most = GPU_UNROLL if jax.default_backend() == 'gpu' else 1
    return next(n for n in range(most, 0, -1) if length % n == 0)


def taken(inputs: Any) -> Any:
    """The inputs of one step, taken out of those of all steps before it begins.

    Taken where they are needed, they would keep norms and softmaxes in several pieces.
    """
    return jax.lax.optimization_barrier(inputs)


class Loops(Protocol):
    """The loops over time of one step, in a form of their own. Must be hashable."""

    def forward(self, params: Any, carry: Any, xs: Any, fixed: Any) -> tuple[Any, Any]:
        """Carries and outputs [T, ...]."""

    def backward(
        self, params: Any, grads: tuple[Any, Any], before: Any, known: Any, fixed: Any
    ) -> tuple[Any, Any]:
        """Gradients of the first carry, and in all of the carries [T, ...].

        grads: of carries and outputs, from outside of the loop. before: the carry
        before each step. known: values and slopes [T, ...] by the names of the memo.
        """


def scan(
    step: Step,
    params: Any,
    carry: Any,
    xs: Any,
    fixed: Any,
    loops: Loops | None = None,
) -> tuple[Any, Any]:
    """Carries and outputs [T, ...] of a step that says through memo what is expensive.

    The step must work on any number of leading dimensions, and use nothing but its
    arguments. Names are used once per step; constants depend on params alone, or need
    no gradient. xs, fixed: inputs [T, ...]; `fixed` gets no gradient. loops: computes
    the same as the loops over time would.
    """
    return _scan_states(step, loops, params, carry, xs, fixed)


def follow(
    step: Step, params: Any, carry: Any, xs: Any, fixed: Any, known: tuple[Any, Any]
) -> tuple[Any, Any]:
    """Known carries and outputs of `scan`, with the gradient that `scan` gives them.

    It saves the forward loop where another loop has computed the same already.
    """
    return _follow_states(step, params, carry, xs, fixed, known)


def _scan(step, loops, params, carry, xs, fixed):
    if loops is not None:
        return loops.forward(params, carry, xs, fixed)

    def body(carry, inputs):
        carry, y = step(compute, params, carry, *taken(inputs))
        return carry, (carry, y)

    inputs = (xs, fixed)
    return jax.lax.scan(body, carry, inputs, unroll=unroll(_length(inputs)))[1]


def _forward(step, loops, params, carry, xs, fixed):
    carries, ys = _scan(step, loops, params, carry, xs, fixed)
    return (carries, ys), (carries, params, carry, xs, fixed)


def _backward(step, loops, residuals, grads):
    carries, params, carry, xs, fixed = residuals
    shift = lambda first, rest: jnp.concatenate([first[None], rest[:-1]])
    before = jax.tree.map(shift, carry, carries)

    def all_steps(params, xs):
        known = {}

        def record(name, function, x, *constants):
            value, slope = function(x, *constants), None
            if hasattr(function, 'slope'):
                slope = jax.lax.stop_gradient(function.slope(x, *constants))
            known[name] = value, slope
            return value

        return step(record, params, before, xs, fixed), known

    _, pullback, known = jax.vjp(all_steps, params, xs, has_aux=True)

    if loops is not None:
        first, totals = loops.backward(params, grads, before, known, fixed)
    else:
        first, totals = _backward_loop(step, params, grads, before, known, xs, fixed)
    grad_params, grad_xs = pullback((totals, grads[1]))
    return grad_params, first, grad_xs, None


def _backward_loop(step, params, grads, before, known, xs, fixed):
    def body(later, inputs):
        (grad_carry, grad_y), before, known, xs, fixed = inputs
        recall = lambda name, *args: _recall(args[0], *known[name], *args[1:])
        one_step = lambda carry: step(recall, params, carry, xs, fixed)
        total = jax.tree.map(jnp.add, grad_carry, later)
        (earlier,) = jax.vjp(one_step, before)[1]((total, grad_y))
        return earlier, total

    inputs = (grads, before, known, xs, fixed)
    zeros = jax.tree.map(lambda x: jnp.zeros_like(x[0]), before)
    return jax.lax.scan(
        body, zeros, inputs, reverse=True, unroll=unroll(_length(inputs))
    )


_scan_states = jax.custom_vjp(_scan, nondiff_argnums=(0, 1))
_scan_states.defvjp(_forward, _backward)


def _follow(step, params, carry, xs, fixed, known):
    return known


def _follow_forward(step, params, carry, xs, fixed, known):
    return known, (known[0], params, carry, xs, fixed)


def _follow_backward(step, residuals, grads):
    return *_backward(step, None, residuals, grads), None


_follow_states = jax.custom_vjp(_follow, nondiff_argnums=(0,))
_follow_states.defvjp(_follow_forward, _follow_backward)


def _length(inputs: Any) -> int:
    return jax.tree.leaves(inputs)[0].shape[0]


def _recall(function, value, slope, x, *constants):
    """function(x, *constants), whose value is known; only x gets a gradient."""

    @jax.custom_vjp
    def known(value, slope, x, constants):
        return value

    def forward(value, slope, x, constants):
        return value, (slope, x, constants)

    def backward(residuals, grad):
        slope, x, constants = residuals
        if slope is not None:
            return None, None, function.pull(slope, grad), None
        (grad_x,) = jax.vjp(lambda x: function(x, *constants), x)[1](grad)
        return None, None, grad_x, None

    known.defvjp(forward, backward)
    return known(value, slope, x, constants)
