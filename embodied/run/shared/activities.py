"""Activities that may take long without a sign, in words for people."""

from collections.abc import Iterable
from typing import Any

from ...core import base

__all__ = ['COMPILING', 'SAVING', 'in_words', 'show_compiling']

COMPILING, SAVING = 'compiling', 'saving'

LONG_SECONDS = 2.0  # of an activity before a person may wonder about it


def in_words(
    activity: str, seconds: float, programs: Iterable[tuple[str, float]] = ()
) -> str:
    """What takes long, '' if nothing does.

    programs: those that are being compiled, and for how many seconds.
    """
    running = dict(programs)
    if running and activity in ('', COMPILING):
        activity = f'{COMPILING} {", ".join(sorted(running))}'
        seconds = max(running.values())
    return f'{activity} for {seconds:.0f} s' if seconds >= LONG_SECONDS else ''


def show_compiling(logger: base.Logger, agent: Any) -> None:
    """Lets a logger that has a `watch` show what an agent of this process compiles."""
    watch = getattr(logger, 'watch', None)
    compiling = getattr(agent, 'compiling', None)
    if watch and compiling:
        watch(lambda: in_words('', 0.0, compiling()))
