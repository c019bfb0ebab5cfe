"""Kernels: how many a GPU has to launch for an update, counted without a GPU.

    pip install 'jax[cuda12]'
    python bench/kernels.py
    python bench/kernels.py --size size1m --show

One JSON line: kernels per update, and those of each loop over time. The program of the
agent is compiled for an H200, for which XLA needs no such device. Where matrices are
small, time goes by the number of kernels: 1.9 us each on average at size1m. Neither
convolutions nor matrix products are tried out, so other ones may be chosen on a device.
`--show` lists the kernels of an iteration of each loop, in the order of their launches.
"""

import argparse
import json
import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from unittest import mock

os.environ['JAX_PLATFORMS'] = 'cpu'  # The agent lives on the host, compiling is all.

import jax
import learner
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

import dreamerv3
from dreamerv3 import config as config_lib
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
    args = parser.parse_args(argv)
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
