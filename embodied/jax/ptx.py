"""PTX: kernels in CUDA C++, compiled at run time and called from JAX.

NVRTC, which comes with jax[cuda], turns the source into PTX. XLA takes its text as a
custom call, without a handler of ours: the call becomes part of compiled programs, of
CUDA graphs and of the cache of programs.
"""

import ctypes
import functools
import importlib.util
import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from embodied.core.errors import ConfigError

__all__ = ['CompileError', 'Kernel', 'call', 'compile_source']

TARGET = '__gpu$xla.gpu.ptx'
ARCHITECTURE = 'compute_90'
# The oldest version of PTX that knows clusters. A compiler writes its own, which may be
# newer than what the driver reads.
VERSION = '8.0'
LIBRARIES = ('libnvrtc.so.13', 'libnvrtc.so.12', 'libnvrtc.so')


class CompileError(ConfigError):
    """A kernel cannot be compiled: no NVRTC, or one that rejects the source."""


class Kernel(NamedTuple):
    """A kernel and its launch."""

    name: str
    ptx: str
    grid: int  # blocks
    threads: int  # per block
    memory: int  # bytes of dynamic shared memory per block


def call(
    kernel: Kernel,
    operands: Sequence[jax.Array],
    results: Sequence[jax.ShapeDtypeStruct],
) -> list[jax.Array]:
    """Launches a kernel, whose parameters are the operands and then the results.

    Each operand must be an array of its own: XLA passes the same one only once.
    """
    size = np.int32
    outs = jax.ffi.ffi_call(TARGET, list(results))(
        *operands,
        name=kernel.name,
        kernel_type='ptx',
        kernel_data=kernel.ptx,
        grid_x=size(kernel.grid),
        grid_y=size(1),
        grid_z=size(1),
        block_x=size(kernel.threads),
        block_y=size(1),
        block_z=size(1),
        shared_mem_bytes=size(kernel.memory),
    )
    return list(outs)


@functools.lru_cache(maxsize=64)
def compile_source(source: str) -> str:
    """CUDA C++ -> PTX."""
    library = _library()
    program = ctypes.c_void_p()
    _check(
        library.nvrtcCreateProgram(
            ctypes.byref(program), source.encode(), b'kernel.cu', 0, None, None
        )
    )
    try:
        flags = [f'--gpu-architecture={ARCHITECTURE}'.encode(), b'--std=c++17']
        options = (ctypes.c_char_p * len(flags))(*flags)
        code = library.nvrtcCompileProgram(program, len(flags), options)
        if code:
            raise CompileError(
                f'NVRTC rejects a kernel: {_text(program, "ProgramLog")}'
            )
        text = _text(program, 'PTX')
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))
    return re.sub(r'(?m)^\.version .*$', f'.version {VERSION}', text, count=1)


def _text(program: ctypes.c_void_p, what: str) -> str:
    library, size = _library(), ctypes.c_size_t()
    _check(getattr(library, f'nvrtcGet{what}Size')(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(getattr(library, f'nvrtcGet{what}')(program, buffer))
    return buffer.value.decode()


def _check(code: int) -> None:
    if code:
        raise CompileError(f'NVRTC fails with error {code}.')


@functools.cache
def _library() -> Any:
    tried = []
    for name in _candidates():
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            tried.append(f'{name} ({error})')
    raise CompileError(
        "NVRTC is not installed: it comes with jax[cuda]. Install the 'cuda' extra, or "
        f'use --jax.kernels off. Tried: {"; ".join(tried)}.'
    )


def _candidates() -> Iterator[str]:
    """Paths in the packages of NVIDIA, then names that the system may know."""
    spec = importlib.util.find_spec('nvidia')
    for root in spec.submodule_search_locations or () if spec else ():
        for name in LIBRARIES:
            yield from map(str, sorted(pathlib.Path(root).glob(f'*/lib/{name}')))
    yield from LIBRARIES
