"""Keys of a step: which are for the log only, and which hold the state of the model."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

__all__ = ['LATENTS', 'is_latent', 'is_log', 'without_log']

T = TypeVar('T')

LOG = 'log/'  # begins the keys that neither the agent nor the replay gets
# Keys that hold the state of the model: prefixes where they end in a slash.
LATENTS = ('enc/', 'dyn/', 'dec/')


def is_log(key: str) -> bool:
    """Whether a key is for the log only."""
    return key.startswith(LOG)


def without_log(values: Mapping[str, T]) -> dict[str, T]:
    """The values, or spaces, of a step that are not for the log only."""
    return {key: value for key, value in values.items() if not key.startswith(LOG)}


def is_latent(key: str, latents: Sequence[str] = LATENTS) -> bool:
    """Whether a key holds the state of the model.

    latents: names of such keys, or prefixes that end in a slash.
    """
    return any(key.startswith(x) if x.endswith('/') else key == x for x in latents)
