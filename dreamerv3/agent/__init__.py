"""The algorithm: losses, behavior and networks of DreamerV3.

`Agent` is imported on first use: only processes with an agent load JAX.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .dreamer import Agent

__all__ = ['Agent']


def __getattr__(name: str) -> Any:
    if name != 'Agent':
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from .dreamer import Agent

    return Agent
