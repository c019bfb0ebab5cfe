"""Seeds of the members of a vector environment."""

from collections.abc import Sequence

import numpy as np

from ...core.errors import ConfigError

__all__ = ['Seeds', 'member_seeds']

Seeds = int | Sequence[int] | None


def member_seeds(seed: Seeds, num: int) -> list[int] | None:
    """One seed per member: those given, or `seed`, `seed + 1` and so on.

    None stays None: the environment draws its seeds itself.
    """
    if seed is None:
        return None
    if isinstance(seed, int | np.integer):
        return [int(seed) + index for index in range(num)]
    seeds = [int(x) for x in seed]
    if len(seeds) != num:
        raise ConfigError(
            f'A vector environment of {num} members got {len(seeds)} seeds. Give one '
            f'per member, or one number, from which they count up.'
        )
    return seeds
