"""Host: holds one environment, answers requests for it and reports its failures.

The same host runs inside of the driver and inside of a worker process. The messages
between the two are defined here as well; a failure travels as a Failure.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import cloudpickle

from ...core import errors, unpickling
from ...core.base import Env, Spaces
from ...processes.child_processes import Surroundings
from ...processes.failure import Failure
from ..vector.rows import members_of

__all__ = ['EnvHost', 'EnvInfo', 'Setup', 'error_of']


class Setup(NamedTuple):
    """First message to a worker: how to become like the parent, and what to run."""

    surroundings: Surroundings
    factory: bytes  # cloudpickled callable that makes the environment


class EnvInfo(NamedTuple):
    """What the driver needs to know about an environment."""

    obs_space: Spaces
    act_space: Spaces
    saves: bool  # whether it has save() and load()
    members: int = 0  # of a vector environment; 0 for a single one


class EnvHost:
    """Answers `make`, `step`, `save` and `load` for one environment.

    States travel and are stored as bytes: only the environment's own process needs to
    know the classes in them, and they cannot change on the way.
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
                spaces = self._env.obs_space, self._env.act_space
                return EnvInfo(*spaces, saves, members_of(self._env))
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


def error_of(failure: Failure, index: int, request: str) -> errors.DreamerError:
    """The error to raise where environment `index` was asked for `request`.

    Mistakes in options keep their type, because they say all there is to say;
    everything else becomes an EnvError with the traceback.
    """
    own = failure.own_type
    if own and issubclass(own, errors.ConfigError):
        return own(failure.message)
    kind = own if own and issubclass(own, errors.EnvError) else errors.EnvError
    error = kind(
        f'Environment {index} failed in {request}(): '
        f'{failure.kind}: {failure.message}\n\n{failure.traceback}'
    )
    return failure.attach(error)
