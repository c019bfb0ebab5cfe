"""DreamerV3: the agent, its presets and the command line.

The agent is imported on first use, because factories from this package are unpickled
in processes that must not load JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .agent import Agent

__all__ = ['Agent']


def __getattr__(name: str) -> Any:
    if name == 'Agent':
        return importlib.import_module('dreamerv3.agent').Agent
    raise AttributeError(f"module 'dreamerv3' has no attribute '{name}'")
