"""Launches a kernel of this folder, compiled for the sizes at hand."""

import dataclasses
import functools
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

import jax

from embodied.jax import ptx

__all__ = ['Launch', 'Shape', 'float_literal', 'launch', 'prepare', 'source']

# launch(kernel, shape, operands, results) -> arrays like `results`
Launch: TypeAlias = Callable[..., list[jax.Array]]

FOLDER = pathlib.Path(__file__).parent
CLUSTER, THREADS = 8, 256  # blocks and threads per block, as in parts.cuh
SIZE = 'extern "C" __constant__ int memory_bytes = sizeof(Memory);\n'


@dataclasses.dataclass(frozen=True)
class Shape:
    """Sizes that every kernel is made for."""

    deter: int
    hidden: int
    stoch: int
    classes: int
    unimix: float
    steps: int

    @property
    def clusters(self) -> int:
        """Clusters of blocks, each with rows of its own."""
        raise NotImplementedError

    def macros(self) -> dict[str, str]:
        """The sizes by their names in the source."""
        names = ('deter', 'hidden', 'stoch', 'classes', 'steps')
        sizes = {name.upper(): str(getattr(self, name)) for name in names}
        return {**sizes, 'UNIMIX': float_literal(self.unimix)}


def float_literal(value: float) -> str:
    """A number as the source writes it."""
    return f'{float(value)!r}f'


def launch(
    name: str,
    shape: Shape,
    operands: Sequence[jax.Array],
    results: Sequence[jax.ShapeDtypeStruct],
) -> list[jax.Array]:
    """Results of a kernel; shape: its sizes."""
    return ptx.call(prepare(name, shape), operands, results)


@functools.lru_cache(maxsize=64)
def prepare(name: str, shape: Shape) -> ptx.Kernel:
    """The compiled kernel; raises ptx.CompileError."""
    text = ptx.compile_source(_read('device.cuh') + source(name, shape) + SIZE)
    found = re.search(r'memory_bytes = (\d+);', text)
    assert found, 'a constant of the source is not in its PTX'
    return ptx.Kernel(name, text, CLUSTER * shape.clusters, THREADS, int(found[1]))


def source(name: str, shape: Shape) -> str:
    """CUDA C++ of a kernel, without the instructions of the device."""
    macros = [f'#define {key} {value}\n' for key, value in shape.macros().items()]
    own = _read(f'{name}.cuh') if (FOLDER / f'{name}.cuh').exists() else ''
    return ''.join(macros) + _read('parts.cuh') + own + _read(f'{name}.cu')


def _read(name: str) -> str:
    return (FOLDER / name).read_text()
