"""Self-test: the kernels against the plain path, on the device that they run on.

Both take every step from the same state, so that differences are those of rounding:
after a sample that differs, nothing that follows would be comparable. All of it is one
program, which the cache of compiled programs keeps.
"""

from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from embodied.jax import nets, recurrence
from embodied.jax.programs import GPU_OPTIONS

from ..heads import Policy
from ..rssm import LOOP_KERNELS, RSSM, State, flatten, masked
from .imagine import ImagineLoop
from .observe import ObserveLoops, ObserveShape

__all__ = ['disagreement', 'imagine_inputs', 'networks', 'observe_inputs']

DTYPE = jnp.bfloat16
# Once is enough for each product: nothing is tried out.
OPTIONS: Any = {**GPU_OPTIONS, 'xla_gpu_autotune_level': 0}
RESETS = 0.1  # share of steps that begin an episode
Rng: TypeAlias = np.random.Generator
TOKENS = 8  # of the encoder: the kernels never see them
# bfloat16 has 8 bits: values differ by 0.4 %, gradients of several operations by more.
VALUE, GRADIENT = 0.01, 0.02
# Share of samples that may differ, where two classes are as good as each other.
SAMPLES = 0.02


def disagreement(
    observe: ObserveLoops, imagine: ImagineLoop | None, config: Any, actions: Any
) -> str:
    """What differs and by how much, or ''. config: the agent's options."""
    rng = np.random.default_rng(0)
    dyn, policy = networks(rng, config, actions)
    inputs = observe_inputs(rng, observe.shape)
    starts = None if imagine is None else imagine_inputs(rng, imagine, actions)

    def measure(dyn: RSSM, policy: Policy, inputs: Any, starts: Any) -> dict[str, Any]:
        found = _check_observe(observe, dyn, *inputs)
        if imagine is not None:
            found |= _check_imagine(imagine, dyn, policy, actions, *starts)
        return found

    program = jax.jit(measure).lower(dyn, policy, inputs, starts)
    options = OPTIONS if jax.default_backend() == 'gpu' else None
    found = jax.device_get(program.compile(options)(dyn, policy, inputs, starts))
    limits = {'samples': SAMPLES, 'gradient': GRADIENT}
    # NaN is above every limit.
    wrong = {
        name: float(x)
        for name, x in found.items()
        if not x <= limits.get(name.split()[0], VALUE)
    }
    return ', '.join(f'{name} by {x:.2g}' for name, x in wrong.items())


def networks(rng: Rng, config: Any, actions: Any) -> tuple[RSSM, Policy]:
    """With biases and norms as training leaves them: not zeros and ones."""
    feat = config.dyn.deter + config.dyn.stoch * config.dyn.classes

    def make(init: nets.Init) -> tuple[RSSM, Policy]:
        dyn = RSSM(init, TOKENS, actions.size, config.dyn)
        return dyn, Policy(init, feat, actions, config.policy)

    def fill(x: Any) -> Any:
        if x.ndim == 1:
            return 0.2 * _normal(rng, *x.shape)
        return _normal(rng, *x.shape) / np.sqrt(np.float32(x.shape[-2]))

    shapes = jax.eval_shape(lambda key: nets.build(make, key), jax.random.key(0))
    is_norm = lambda x: isinstance(x, nets.RMSNorm)
    cast = lambda x: jax.tree.map(lambda a: 1 + a, x) if is_norm(x) else x.astype(DTYPE)
    return jax.tree.map(cast, jax.tree.map(fill, shapes), is_leaf=is_norm)


def observe_inputs(rng: Rng, shape: ObserveShape) -> tuple[Any, ...]:
    """A state, and then inputs and gradients of all steps."""
    steps = (shape.steps, shape.batch)
    groups = (*steps, shape.stoch, shape.classes)
    half = lambda *size: _normal(rng, *size).astype(DTYPE)
    wide, narrow = (*steps, shape.deter), (*steps, shape.hidden)
    drives = (half(*wide), half(*narrow))
    fixed = (rng.random(steps) < RESETS, _gumbel(rng, groups))
    grads = ((State(half(*wide), half(*groups)), half(*narrow)), _normal(rng, *groups))
    return _start(rng, shape, shape.batch), drives, fixed, grads


def imagine_inputs(rng: Rng, loop: ImagineLoop, actions: Any) -> tuple[Any, ...]:
    """A state and noise."""
    shape = loop.shape
    lead = (shape.steps, shape.rows)
    gumbel = _gumbel(rng, (*lead, shape.stoch, shape.classes))
    like = jax.eval_shape(lambda key: actions.noise(key, lead), jax.random.key(0))
    draw = _gumbel if shape.discrete else lambda rng, size: _normal(rng, *size)
    noise = {key: draw(rng, x.shape) for key, x in like.items()}
    return _start(rng, shape, shape.rows), (gumbel, noise)


def _start(rng: Rng, shape: Any, rows: int) -> State:
    index = rng.integers(0, shape.classes, (rows, shape.stoch))
    stoch: Any = np.eye(shape.classes, dtype=DTYPE)[index]
    return State((0.5 * _normal(rng, rows, shape.deter)).astype(DTYPE), stoch)


def _normal(rng: Rng, *size: int) -> Any:
    return rng.standard_normal(size, np.float32)


def _gumbel(rng: Rng, size: tuple[int, ...]) -> Any:
    return rng.gumbel(size=size).astype(np.float32)


def _check_observe(
    loops: ObserveLoops, dyn: RSSM, state: State, drives: Any, fixed: Any, grads: Any
) -> dict[str, jax.Array]:
    kernels = dyn.kernels(DTYPE, dense=False)
    state = State(*(masked(x, fixed[0][0]) for x in state))
    carry = (state, state.deter @ kernels['deter_in'])
    params = (dyn, {name: kernels[name] for name in LOOP_KERNELS})
    outs, logits = loops.forward(params, carry, drives, fixed)
    before = _shifted(carry, outs)
    plain = RSSM._observe_step(recurrence.compute, params, before, drives, fixed)
    (states, drive), plain_logits = plain
    found = {
        'deter': _distance(outs[0].deter, states.deter),
        'drive': _distance(outs[1], drive),
        'logits': _distance(logits, plain_logits),
        'samples of the posterior': _differing(outs[0].stoch, states.stoch),
    }
    return found | _check_gradients(loops, params, before, drives, fixed, grads)


def _check_gradients(
    loops: ObserveLoops, params: Any, before: Any, drives: Any, fixed: Any, grads: Any
) -> dict[str, jax.Array]:
    known: dict[str, Any] = {}

    def record(name: str, function: Any, x: jax.Array, *constants: Any) -> jax.Array:
        value, slope = function(x, *constants), None
        if hasattr(function, 'slope'):
            slope = function.slope(x, *constants)
        known[name] = value, slope
        return value

    RSSM._observe_step(record, params, before, drives, fixed)
    first, totals = loops.backward(params, grads, before, known, fixed)
    step = lambda carry: RSSM._observe_step(
        recurrence.compute, params, carry, drives, fixed
    )
    (earlier,) = jax.vjp(step, before)[1]((totals, grads[1]))
    # The total of a step is what comes from outside, and from the step after it.
    later = jax.tree.map(lambda x: x[1:], earlier)
    plain = jax.tree.map(lambda a, b: a[:-1] + b, grads[0], later)
    ours = jax.tree.map(lambda x: x[:-1], totals)
    begin = jax.tree.map(lambda x: x[0], earlier)
    names = ('gradient of deter', 'gradient of stoch', 'gradient of drive')
    pairs = (*zip(names, *map(_leaves, (ours, plain)), strict=True),)
    firsts = (*zip(names, *map(_leaves, (first, begin)), strict=True),)
    return {
        **{name: _distance(a, b) for name, a, b in pairs},
        **{f'{name} at first': _distance(a, b) for name, a, b in firsts},
    }


def _check_imagine(
    loop: ImagineLoop,
    dyn: RSSM,
    policy: Policy,
    actions: Any,
    start: State,
    noise: tuple[jax.Array, Any],
) -> dict[str, jax.Array]:
    states, acts = loop(dyn, policy, start, noise)
    before = jax.tree.map(lambda x: x[:-1], states)
    after = jax.tree.map(lambda x: x[1:], states)
    chosen = actions.sample(policy(before.feat), noise[1])[loop.key]
    drawn, shape = acts[loop.key], loop.shape
    step = jax.vmap(dyn.imagine_step)
    plain = step(before, actions.vector(acts, DTYPE), noise[0])
    name = 'samples of the policy' if shape.discrete else 'actions'
    compare = _differing if shape.discrete else _distance
    return {
        name: compare(drawn[..., None], chosen[..., None]),
        'imagined deter': _distance(after.deter, plain.deter),
        'samples of the prior': _differing(after.stoch, plain.stoch),
    }


def _shifted(carry: Any, carries: Any) -> Any:
    shift = lambda first, rest: jnp.concatenate([first[None], rest[:-1]])
    return jax.tree.map(shift, carry, carries)


def _leaves(carry: Any) -> list[jax.Array]:
    state, drive = carry
    return [state.deter, flatten(state.stoch), drive]


def _distance(ours: jax.Array, plain: jax.Array) -> jax.Array:
    a, b = (x.astype(jnp.float32) for x in (ours, plain))
    return jnp.linalg.norm((a - b).ravel()) / jnp.linalg.norm(b.ravel())


def _differing(ours: jax.Array, plain: jax.Array) -> jax.Array:
    return (ours != plain).any(-1).mean()
