"""Ratios: what a number of steps has earned, in exact arithmetic."""

from fractions import Fraction
from typing import TypeVar

__all__ = ['MAX_DENOMINATOR', 'as_fraction', 'earned']

N = TypeVar('N', int, Fraction)

# A ratio such as 0.1 is one tenth, not the binary number next to it.
MAX_DENOMINATOR = 10**6


def as_fraction(ratio: float | Fraction) -> Fraction:
    """The fraction that the user means by a decimal number."""
    if isinstance(ratio, Fraction):
        return ratio
    return Fraction(str(ratio)).limit_denominator(MAX_DENOMINATOR)


def earned(count: int, start: int, before: N, ratio: N) -> N:
    """What `count` steps have earned, at `ratio` per step since `start`.

    before: what the steps up to `start` have earned. Any unit will do, as long as
    `before` and `ratio` have the same one.
    """
    return before + max(0, count - start) * ratio
