"""Distributed training: the roles of a run as processes that call each other.

Names are imported on first use, so that an environment worker loads no more than it
needs.
"""

from typing import TYPE_CHECKING

from ...core.lazy import importer

if TYPE_CHECKING:
    from .actor.actor_server import parallel_actor
    from .agent import parallel_agent
    from .env.worker import parallel_env, parallel_envs
    from .launch import combined
    from .learner.learner import parallel_learner
    from .logger.logger import parallel_logger
    from .replay.replay_server import parallel_replay

_HOMES = {
    'combined': 'launch',
    'parallel_actor': 'actor.actor_server',
    'parallel_agent': 'agent',
    'parallel_env': 'env.worker',
    'parallel_envs': 'env.worker',
    'parallel_learner': 'learner.learner',
    'parallel_logger': 'logger.logger',
    'parallel_replay': 'replay.replay_server',
}

__all__ = [
    'combined',
    'parallel_actor',
    'parallel_agent',
    'parallel_env',
    'parallel_envs',
    'parallel_learner',
    'parallel_logger',
    'parallel_replay',
]

__getattr__ = importer(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
