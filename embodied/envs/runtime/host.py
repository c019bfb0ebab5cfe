"""Host: holds one environment, answers requests for it and reports its failures.

The same host runs inside of the driver and inside of a worker process. The messages
between the two are defined here as well.
"""

import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple

import cloudpickle

from ...core import errors, unpickling
from ...core.base import Env, Spaces
from ...processes.child_processes import Surroundings

__all__ = ['EnvHost', 'EnvInfo', 'Failure', 'Setup']


class Setup(NamedTuple):
    """First message to a worker: how to become like the parent, and what to run."""

    surroundings: Surroundings
    factory: bytes  # cloudpickled callable that makes the environment


class EnvInfo(NamedTuple):
    """What the driver needs to know about an environment."""

    obs_space: Spaces
    act_space: Spaces
    saves: bool  # whether it has save() and load()


class Failure(NamedTuple):
    """An exception in an environment, in a form that every process can read."""

    request: str
    kind: str
    message: str
    traceback: str

    @classmethod
    def of(cls, request: str, error: BaseException) -> 'Failure':
        frames = _foreign_frames(error.__traceback__)
        text = ''.join(traceback.format_exception(type(error), error, frames))
        return cls(request, type(error).__name__, str(error), text)

    def error(self, index: int) -> errors.DreamerError:
        """The error to raise where environment `index` is used.

        Mistakes in options keep their type, because they say all there is to say;
        everything else becomes an EnvError with the traceback.
        """
        own = getattr(errors, self.kind, None)
        if own is not None and issubclass(own, errors.ConfigError):
            return own(self.message)
        kind = own if own and issubclass(own, errors.EnvError) else errors.EnvError
        return kind(
            f'Environment {index} failed in {self.request}(): '
            f'{self.kind}: {self.message}\n\n{self.traceback}'
        )


class EnvHost:
    """Answers `make`, `step`, `save` and `load` for one environment.

    States travel and are stored as bytes: only the environment's own process needs to
    know the classes in them, and nobody can change them on the way.
    """

    def __init__(self, make: Callable[[], Env]) -> None:
        self._make = make
        self._env: Any = None

    def answer(self, request: str, *args: Any) -> Any:
        match request:
            case 'step':
                return self._env.step(*args)
            case 'make':
                self._env = self._make()
                saves = hasattr(self._env, 'save') and hasattr(self._env, 'load')
                return EnvInfo(self._env.obs_space, self._env.act_space, saves)
            case 'save':
                return cloudpickle.dumps(self._env.save())
            case 'load':
                state, trust = args
                return self._env.load(unpickling.loads(state, trust))
        raise AssertionError(request)

    def close(self) -> None:
        """Closes the environment, if there is one, once."""
        env, self._env = self._env, None
        if env is not None:
            env.close()


def _foreign_frames(frames: TracebackType | None) -> TracebackType | None:
    """The traceback without our own outermost frames, unless that is all of it."""
    inner = frames
    while inner and inner.tb_frame.f_globals.get('__package__') == __package__:
        inner = inner.tb_next
    return inner or frames
