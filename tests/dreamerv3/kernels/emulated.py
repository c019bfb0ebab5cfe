"""Runs kernels on the host: the same source, compiled with the emulator."""

import ctypes
import hashlib
import pathlib
import subprocess

import jax
import numpy as np

from dreamerv3.agent.networks.kernels.cuda_launch import source

HERE = pathlib.Path(__file__).parent
LAUNCH = """
extern "C" int emulate(void** arguments, int clusters, unsigned seed) {
  return launch(%s, arguments, clusters, kernel_blocks, kernel_threads,
                sizeof(Memory), seed);
}
"""


class Emulator:
    """A launch of kernels; seed: of the order in which their threads run."""

    def __init__(self, folder, seed=0):
        self._folder, self._seed = folder, seed

    def __call__(self, name, shape, operands, results):
        def run(*operands):
            return self._run(name, shape, operands, results)

        return list(jax.pure_callback(run, tuple(results), *operands))

    def _run(self, name, shape, operands, results):
        library = self._build(name, shape)
        ins = [np.ascontiguousarray(np.asarray(x)) for x in operands]
        # What a kernel does not write stays wrong.
        outs = [np.full(x.shape, 77, x.dtype) for x in results]
        pointers = [x.ctypes.data for x in (*ins, *outs)]
        arguments = (ctypes.c_void_p * len(pointers))(*pointers)
        done = library.emulate(arguments, shape.clusters, self._seed)
        assert done, f'the threads of {name} wait for each other forever'
        return tuple(outs)

    def _build(self, name, shape):
        text = (HERE / 'emulator.h').read_text() + source(name, shape) + LAUNCH % name
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        library = self._folder / f'{name}-{digest}.so'
        if not library.exists():
            code = library.with_suffix('.cpp')
            code.write_text(text)
            command = ['g++', '-std=c++17', '-O2', '-w', '-shared', '-fPIC']
            subprocess.run([*command, '-o', library, code], check=True)
        return ctypes.CDLL(str(library))
