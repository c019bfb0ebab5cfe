"""Environments for tests of the driver, in a module that workers can import."""

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import elements
import numpy as np

from embodied.core.base import Env, Spaces
from embodied.envs.spaces import act_spaces, make_obs, obs_spaces
from embodied.envs.wrappers import Wrapper


class Counter(Env):
    """Shows its `name`, the count and the last action; ends after `length` steps."""

    def __init__(self, name: int = 0, length: int = 3) -> None:
        self._name = name
        self._length = length
        self._count = 0
        self._over = True

    @property
    def obs_space(self) -> Spaces:
        return obs_spaces(
            {
                'name': elements.Space(np.int32, (), 0, 100),
                'count': elements.Space(np.float32, (2,)),
                'seen': elements.Space(np.int32, (), 0, 1000),
                'log/square': elements.Space(np.float32),
            }
        )

    @property
    def act_space(self) -> Spaces:
        return act_spaces({'action': elements.Space(np.int32, (), 0, 1000)})

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        if action['reset'] or self._over:
            self._count, self._over = 0, False
            return make_obs(self._show(0), is_first=True)
        self._count += 1
        self._over = self._count == self._length
        return make_obs(self._show(action['action']), self._count, is_last=self._over)

    def _show(self, action: Any) -> dict[str, Any]:
        return {
            'name': np.int32(self._name),
            'count': np.full(2, self._count, np.float32),
            'seen': np.int32(action),
            'log/square': float(self._count**2),
        }


class SavedCounter(Counter):
    """The same with save and load."""

    def save(self) -> Any:
        return self._count, self._over

    def load(self, data: Any) -> None:
        self._count, self._over = data


class Faulty(Counter):
    """Does something bad in its second step."""

    def __init__(self, fault: str) -> None:
        super().__init__(length=100)
        self._fault = fault
        if fault == 'kill_beside_child' and os.fork() == 0:
            signal.pause()  # The child holds the pipe open.

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        obs = super().step(action)
        if self._count == 1:
            getattr(self, self._fault)()
        return obs

    def divide(self) -> None:
        self._count // 0  # the line at fault

    def leave(self) -> None:
        sys.exit('enough')

    def exit(self) -> None:
        os._exit(3)

    def kill(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def crash(self) -> None:
        os.kill(os.getpid(), signal.SIGSEGV)

    def kill_beside_child(self) -> None:
        self.kill()

    def hang(self) -> None:
        os.write(1, b'hanging\n')  # at once, unlike print() without a buffer
        signal.pause()


class Unpicklable(Counter):
    """Returns what cannot be sent."""

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        return {**super().step(action), 'name': lambda: None}


class BadClose(Counter):
    def close(self) -> None:
        raise RuntimeError('cannot close')


class Meeting(Counter):
    """Its step waits for that of another environment with the same fifo."""

    def __init__(self, fifo: Path, reads: bool) -> None:
        super().__init__()
        self._fifo = fifo
        self._mode = 'rb' if reads else 'wb'

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        # Opening one end blocks until the other is opened.
        with self._fifo.open(self._mode):
            return super().step(action)


class Marking(Counter):
    """Leaves a file behind when it is closed."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def close(self) -> None:
        self._path.touch()


class Modules(Wrapper):
    """Logs whether JAX is loaded in its process, and the process."""

    @property
    def obs_space(self) -> Spaces:
        pid = elements.Space(np.int64)
        return {**self.env.obs_space, 'log/jax': elements.Space(bool), 'log/pid': pid}

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        jax = any(name.partition('.')[0] in ('jax', 'jaxlib') for name in sys.modules)
        return {**self.env.step(action), 'log/jax': jax, 'log/pid': os.getpid()}
