"""Contracts and machinery of reinforcement-learning runs, without any algorithm.

Names are imported on first use: environment workers, replay and logger unpickle
factories from here and must not pay for, or even load, what only agents need.
"""

from typing import TYPE_CHECKING

from .core.lazy import importer

if TYPE_CHECKING:
    from . import clock, envs, jax, logging, replay, run, streams, transport
    from .clock import GlobalClock, LocalClock
    from .core import limiters
    from .core.base import Agent, Env, Logger, Replay, Stream, VectorEnv
    from .core.random_agent import RandomAgent
    from .envs import wrappers
    from .envs.runtime.driver import Driver
    from .envs.wrappers import Wrapper
    from .replay.sampling import selectors

_HOMES = {
    'Agent': 'core.base',
    'Env': 'core.base',
    'Logger': 'core.base',
    'Replay': 'core.base',
    'Stream': 'core.base',
    'VectorEnv': 'core.base',
    'GlobalClock': 'clock',
    'LocalClock': 'clock',
    'Driver': 'envs.runtime.driver',
    'RandomAgent': 'core.random_agent',
    'Wrapper': 'envs.wrappers',
}
_MODULES = (
    'clock',
    'core',
    'core.limiters',
    'envs',
    'envs.wrappers',
    'jax',
    'logging',
    'replay',
    'replay.sampling.selectors',
    'run',
    'streams',
    'transport',
)

__all__ = [
    'Agent',
    'Driver',
    'Env',
    'GlobalClock',
    'LocalClock',
    'Logger',
    'RandomAgent',
    'Replay',
    'Stream',
    'VectorEnv',
    'Wrapper',
    'clock',
    'envs',
    'jax',
    'limiters',
    'logging',
    'replay',
    'run',
    'selectors',
    'streams',
    'transport',
    'wrappers',
]

__getattr__ = importer(__name__, _HOMES, _MODULES)


def __dir__() -> list[str]:
    return sorted(__all__)
