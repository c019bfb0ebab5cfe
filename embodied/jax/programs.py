"""Programs: functions that are compiled once per shape, also ahead of time."""

import pathlib
import sys
import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax

from embodied.core.errors import ConfigError
from embodied.processes import cpu

__all__ = ['Compiled', 'Compiler', 'Program', 'choose_device', 'setup']

PLATFORMS = ('auto', 'cpu', 'cuda')
CACHE_HIT = '/jax/compilation_cache/cache_hits'
CORES_PER_COMPILATION = 4
# Seconds after which a thread gives the interpreter to another one. A learner that
# launches an update every few milliseconds cannot wait for the default of 5 ms.
SWITCH_INTERVAL = 1e-4

# Building and trying out variants of each matrix product took over half of the compile
# time; cuBLAS knows good ones. Convolutions do need trying out (without, some are a
# hundred times slower), but not comparing the results of all variants (levels 3 and 4).
GPU_OPTIONS = {'xla_gpu_enable_triton_gemm': False, 'xla_gpu_autotune_level': 2}


def setup(platform: str = 'auto', cache: str = '') -> None:
    """Prepares this process: chooses the platform, keeps compiled programs in the
    folder `cache`, and lets threads take turns often."""
    sys.setswitchinterval(SWITCH_INTERVAL)
    if platform not in PLATFORMS:
        raise ConfigError(
            f'jax.platform={platform} is unknown. Use one of: {", ".join(PLATFORMS)}.'
        )
    if platform != 'auto':
        # The host stays usable beside an accelerator: acting may run there.
        platforms = platform if platform == 'cpu' else f'{platform},cpu'
        jax.config.update('jax_platforms', platforms)
    if cache:
        folder = pathlib.Path(cache).expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        jax.config.update('jax_compilation_cache_dir', str(folder))
        jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.5)
        jax.config.update('jax_persistent_cache_min_entry_size_bytes', -1)
    try:
        jax.devices()
    except RuntimeError as error:
        raise ConfigError(
            f'jax.platform={platform} is not usable on this machine: {error}. Install '
            "the 'cuda' extra and a driver, or use --jax.platform cpu."
        ) from error


def choose_device(name: str) -> jax.Device | None:
    """'' is none in particular, 'cpu' the host, a number one of the accelerators."""
    if not name:
        return None
    if name == 'cpu':
        return jax.local_devices(backend='cpu')[0]
    devices = jax.local_devices()
    if not name.isdigit() or int(name) >= len(devices):
        raise ConfigError(
            f"jax.policy_devices='{name}' is no device. Use 'cpu', a number below "
            f'{len(devices)}, or nothing for the device that trains.'
        )
    return devices[int(name)]


class Compiled(NamedTuple):
    """How a program came to be."""

    program: str
    seconds: float
    cached: bool  # found in the folder of compiled programs


class Compiler:
    """Compiles programs, each in a thread if asked for ahead of time."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(
            max(1, cpu.count_cores() // CORES_PER_COMPILATION), 'compile'
        )
        self.log: list[Compiled] = []
        self._running: dict[object, tuple[str, float]] = {}  # names and begins

    def ahead(self, function: Callable[[], Any]) -> Future:
        return self._pool.submit(function)

    def running(self) -> list[tuple[str, float]]:
        """Names of the programs that are being compiled, and for how many seconds."""
        now = time.perf_counter()
        return [(name, now - begin) for name, begin in list(self._running.values())]

    def compile(self, name: str, lower: Callable[[], Any]) -> Any:
        """The executable of lower(), which returns a lowered program."""
        begin, hits, thread = time.perf_counter(), [], threading.get_ident()

        def count(event: str, **_: Any) -> None:
            if event == CACHE_HIT and threading.get_ident() == thread:
                hits.append(event)

        jax.monitoring.register_event_listener(count)
        self._running[lower] = name, begin
        try:
            options = GPU_OPTIONS if jax.default_backend() == 'gpu' else None
            executable = lower().compile(options)
        finally:
            del self._running[lower]
            jax.monitoring.unregister_event_listener(count)
        seconds = time.perf_counter() - begin
        self.log.append(Compiled(name, seconds, bool(hits)))
        return executable


class Program:
    """A function compiled for each signature of its arguments.

    The caller says what the signature is: comparing the shapes of all arguments would
    cost more than the call.
    """

    def __init__(
        self,
        name: str,
        compiler: Compiler,
        function: Callable[..., Any],
        donate: tuple[int, ...] = (),
        placements: Any = None,
    ):
        """placements: of the results; None is wherever the arguments are."""
        self._name, self._compiler = name, compiler
        self._jit = jax.jit(function, donate_argnums=donate, out_shardings=placements)
        self._executables: dict[Hashable, Future] = {}
        self._lock = threading.Lock()

    def prepare(self, signature: Hashable, *args: Any) -> None:
        """Compiles in the background; args may be shapes instead of arrays."""
        with self._lock:
            if signature not in self._executables:
                self._executables[signature] = self._compiler.ahead(
                    lambda: self._compile(args)
                )

    def __call__(self, signature: Hashable, *args: Any) -> Any:
        future = self._executables.get(signature)
        if future is None:
            future = self._add(signature, args)
        return future.result()(*args)

    def _add(self, signature: Hashable, args: Any) -> Future:
        with self._lock:
            future = self._executables.get(signature)
            if future is None:
                future = Future()
                future.set_result(self._compile(args))
                self._executables[signature] = future
            return future

    def _compile(self, args: Any) -> Any:
        return self._compiler.compile(self._name, lambda: self._jit.lower(*args))
