"""Kernels in CUDA C++: what becomes of them without a GPU."""

import importlib.util

import jax
import jax.numpy as jnp
import pytest

from embodied.jax import ptx

SOURCE = """
extern "C" __global__ void twice(const float* x, float* y) {
  y[threadIdx.x] = 2 * x[threadIdx.x];
}
"""


MISSING = 'NVRTC is not installed (pip install nvidia-cuda-nvrtc)'


def has_nvrtc():
    try:
        ptx._library()
    except ptx.CompileError:
        return False
    return True


needs_nvrtc = pytest.mark.skipif(not has_nvrtc(), reason=MISSING)


def test_a_launch_becomes_a_call_of_xla():
    kernel = ptx.Kernel('twice', '.version 8.0', grid=3, threads=32, memory=512)
    shape = jax.ShapeDtypeStruct((32,), jnp.float32)
    launch = jax.jit(lambda x: ptx.call(kernel, [x], [shape])[0])
    lowered = launch.trace(shape).lower(lowering_platforms=('cuda',)).as_text()
    for part in (
        '@__gpu$xla.gpu.ptx',
        'name = "twice"',
        'grid_x = 3 : i32',
        'block_x = 32 : i32',
        'shared_mem_bytes = 512 : i32',
    ):
        assert part in lowered


@needs_nvrtc
def test_source_becomes_ptx_that_old_drivers_read():
    text = ptx.compile_source(SOURCE)
    assert '.entry twice(' in text
    assert f'\n.version {ptx.VERSION}\n' in text


@needs_nvrtc
def test_a_mistake_is_shown_as_the_compiler_says_it():
    with pytest.raises(ptx.CompileError, match='identifier "z" is undefined'):
        ptx.compile_source(SOURCE.replace('2 * x', 'z * x'))


def test_without_nvrtc_the_advice_is_to_install_it(monkeypatch):
    monkeypatch.setattr(ptx, 'LIBRARIES', ('libnvrtc-missing.so',))
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
    ptx._library.cache_clear()
    try:
        with pytest.raises(ptx.CompileError, match="Install the 'cuda' extra"):
            ptx.compile_source(SOURCE.replace('2', '3'))
    finally:
        ptx._library.cache_clear()
