"""Kernels: how many a GPU has to launch for an update, counted without a GPU.

    pip install 'jax[cuda12]'
    python bench/kernels.py
    python bench/kernels.py --size size1m --show
    python bench/kernels.py --size size1m --time   # on a GPU

One JSON line: kernels per update, and those of each loop over time. The program of the
agent is compiled for an H200, for which XLA needs no such device. Where matrices are
small, time goes by the number of kernels: 1.9 us each on average at size1m. Neither
convolutions nor matrix products are tried out, so other ones may be chosen on a device.
`--show` lists the kernels of an iteration of each loop, in the order of their launches.

`--time` measures the loops over time as kernels of our own (`jax.kernels`) against the
plain ones, one JSON line for each: microseconds of a call within a program that makes
many, so that launching from Python does not count.
"""

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
from unittest import mock

if '--time' not in sys.argv:
    os.environ['JAX_PLATFORMS'] = (
        'cpu'  # The agent lives on the host, compiling is all.
    )

import jax
import jax.numpy as jnp
import learner
import numpy as np
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

import dreamerv3
from dreamerv3 import config as config_lib
from dreamerv3.agent import behavior
from dreamerv3.agent.networks.kernels import selftest
from embodied.jax.programs import GPU_OPTIONS

H200 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
  shared_memory_per_block: 49152 shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472 core_count: 132 fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 4800000000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98
  device_memory_size: 150754820096 cuda_compute_capability { major: 9 minor: 0 }
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
}
platform_name: "CUDA" device_description_str: "NVIDIA H200"
dnn_version_info { major: 9 minor: 10 } runtime_version { major: 12 minor: 9 }
"""

CALLS = 20  # of a loop within a program

# Instructions for which nothing is launched.
FREE = {
    *('parameter', 'constant', 'tuple', 'get-tuple-element', 'bitcast'),
    *('while', 'call', 'after-all'),
}


class Instruction(NamedTuple):
    name: str
    shape: str
    kind: str
    text: str


class Loop(NamedTuple):
    name: str
    trips: int
    kernels: list[Instruction]  # of an iteration


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--size', default='size12m')
    parser.add_argument('--show', action='store_true')
    parser.add_argument('--time', action='store_true')
    args = parser.parse_args(argv)
    if args.time:
        time_loops(args.size)
        return
    try:
        program = Program(compile_update(args.size))
    except NotImplementedError:
        missing = "XLA for GPUs is not installed: pip install 'jax[cuda12]'"
        print(json.dumps({'bench': 'kernels', 'skipped': missing}), flush=True)
        return
    loops = list(program.loops())
    once = len(program.kernels(program.entry))
    line = {
        'bench': 'kernels',
        'size': args.size,
        'kernels': once + sum(x.trips * len(x.kernels) for x in loops),
        'once': once,
        'loops': [f'{x.trips} x {len(x.kernels)}' for x in loops],
        'jax': jax.__version__,
    }
    print(json.dumps(line), flush=True)
    for loop in loops if args.show else ():
        print(f'{loop.name}, {loop.trips} iterations:')
        for x in loop.kernels:
            print(f'    {x.name:40} {x.kind:12} {x.shape}')


def compile_update(size: str) -> str:
    """The text of the program that trains an agent of this size."""
    flags = ['--configs', size, '--jax.platform', 'cpu']
    config = config_lib.resolve(flags)[0]
    (device,) = topologies.get_topology_desc(
        '', 'cuda', target_config=H200, topology='1x1x1'
    ).devices
    place = SingleDeviceSharding(device)
    shape = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place)
    options = {**GPU_OPTIONS, 'xla_gpu_autotune_level': 0}
    # The code asks which device is there, to choose between two ways.
    with mock.patch.object(jax, 'default_backend', lambda: 'gpu'):
        agent = dreamerv3.Agent(*learner._spaces(size), config)
        args = agent.arguments(config.batch_size, config.batch_length)
        update = jax.jit(agent._train, donate_argnums=0)
        return update.lower(*jax.tree.map(shape, args)).compile(options).as_text()


def time_loops(size: str) -> None:
    """Prints what each loop takes, as a kernel and as it is otherwise."""
    config = config_lib.resolve(['--configs', size, '--jax.kernels', 'on'])[0]
    model = dreamerv3.Agent(*learner._spaces(size), config).model
    batch, steps = config.batch_size, config.batch_length
    observe = model.loops.observe(batch, steps)
    imagine = model.loops.imagine(batch * steps, config.agent.imag_length)
    rng = np.random.default_rng(0)
    dyn, policy = selftest.networks(rng, config.agent, model.actions)
    draw = lambda *shape: rng.standard_normal(shape, np.float32).astype(jnp.bfloat16)
    start, _, (reset, gumbel), _ = selftest.observe_inputs(rng, observe.shape)
    fixed = (reset.swapaxes(0, 1), gumbel.swapaxes(0, 1))
    action = draw(batch, steps, model.actions.size)
    tokens = draw(batch, steps, selftest.TOKENS)
    starts, noise = selftest.imagine_inputs(rng, imagine, model.actions)

    def follow(loops: Any) -> Callable[[Any], Any]:
        def call(carry: Any) -> Any:
            states, _ = dyn.observe(*carry, action, *fixed, loops=loops)
            return jax.tree.map(lambda x: x[:, -1], states), carry[1]

        return call

    def learn(loops: Any) -> Callable[[Any], Any]:
        def loss(dyn: Any, state: Any, tokens: jax.Array) -> Any:
            outs = dyn.observe(state, tokens, action, *fixed, loops=loops)
            total = sum(x.astype(jnp.float32).sum() for x in jax.tree.leaves(outs))
            return total, jax.tree.map(lambda x: x[:, -1], outs[0])

        def call(carry: Any) -> Any:
            grad = jax.grad(loss, argnums=(0, 2), has_aux=True)
            (by_dyn, by_tokens), last = grad(dyn, *carry)
            norm = sum(jnp.square(x).sum() for x in jax.tree.leaves(by_dyn))
            return last, (by_tokens + 0 * norm).astype(tokens.dtype)

        return call

    def dream(loop: Any) -> Callable[[Any], Any]:
        def call(carry: Any) -> Any:
            states, _ = behavior.imagine(dyn, policy, carry, noise, loop)
            return jax.tree.map(lambda x: x[-1], states)

        return call

    for name, make, own, carry in (
        ('observe', follow, observe, (start, tokens)),
        ('observe and gradients', learn, observe, (start, tokens)),
        ('imagine', dream, imagine, starts),
    ):
        line = {'bench': 'kernels', 'size': size, 'loop': name}
        line |= {'kernel_us': time_calls(make(own), carry)}
        line |= {'plain_us': time_calls(make(None), carry)}
        print(json.dumps(line | {'device': jax.devices()[0].device_kind}), flush=True)


def time_calls(call: Callable[[Any], Any], carry: Any) -> float:
    """Microseconds of a call, the median of five programs that make CALLS of them."""
    many = lambda x: jax.lax.scan(lambda x, _: (call(x), None), x, length=CALLS)[0]
    program = jax.jit(many).lower(carry).compile(GPU_OPTIONS)
    jax.block_until_ready(program(carry))
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        jax.block_until_ready(program(carry))
        times.append(time.perf_counter() - begin)
    return round(sorted(times)[2] / CALLS * 1e6, 1)


class Program:
    """Reads the text of a compiled program: computations of instructions."""

    def __init__(self, text: str):
        blocks = re.findall(
            r'^(ENTRY )?%([\w.\-]+) \(.*?\{$(.*?)^\}', text, re.M | re.S
        )
        self._bodies = {name: body for _, name, body in blocks}
        self.entry = next(name for entry, name, _ in blocks if entry)

    def kernels(self, computation: str) -> list[Instruction]:
        return [x for x in self._instructions(computation) if x.kind not in FREE]

    def loops(self) -> Iterator[Loop]:
        for x in self._instructions(self.entry):
            if x.kind == 'while':
                body = re.search(r'body=%([\w.\-]+)', x.text)
                trips = re.search(r'known_trip_count":\{"n":"(\d+)"', x.text)
                assert body and trips, x.text
                yield Loop(x.name, int(trips[1]), self.kernels(body[1]))

    def _instructions(self, computation: str) -> list[Instruction]:
        pattern = r'^\s+(?:ROOT )?%([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)$'
        found = re.findall(pattern, self._bodies[computation], re.M)
        return [Instruction(*x) for x in found]


if __name__ == '__main__':
    main()
