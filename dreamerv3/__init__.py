"""DreamerV3: the agent, its presets and the command line.

Names are imported on first use, because factories from this package are unpickled in
processes that must not load JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .agent.dreamer import Agent
    from .agent.model import Dreamer
    from .api.evaluate import evaluate
    from .api.loaded import load
    from .api.training import Run, StopRun, train

_HOMES = {
    'Agent': 'agent.dreamer',
    'Dreamer': 'agent.model',
    'evaluate': 'api.evaluate',
    'load': 'api.loaded',
    'Run': 'api.training',
    'StopRun': 'api.training',
    'train': 'api.training',
}

__all__ = ['Agent', 'Dreamer', 'Run', 'StopRun', 'evaluate', 'load', 'train']


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'dreamerv3' has no attribute '{name}'")
    try:
        return getattr(importlib.import_module(f'dreamerv3.{_HOMES[name]}'), name)
    except ImportError as error:
        from dreamer_parallel import find_conflicts

        for text in find_conflicts():
            error.add_note(text)
        raise


def __dir__() -> list[str]:
    return sorted(__all__)
