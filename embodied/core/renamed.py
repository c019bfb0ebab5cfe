"""Renamed options: what the version before called by another name still works.

An alias stays for one version. Each use of it produces a note with the name of today.
"""

import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

__all__ = ['renew']


class Alias(NamedTuple):
    """A former option, or one of its values, and what has become of it.

    value: the former value; None stands for all values but 0, which move to `new`.
    scripts: those for which the option has another name now; () stands for all.
    """

    option: str
    value: str | None
    new: str
    new_value: str | None = None
    scripts: tuple[str, ...] = ()

    def is_used(self, options: Mapping[str, Any]) -> bool:
        if self.scripts and options.get('script') not in self.scripts:
            return False
        given = options.get(self.option)
        return bool(given) if self.value is None else given == self.value

    def replace(self, options: dict[str, Any]) -> str:
        """Puts the name of today in the place of this one; a note that says so."""
        given = options[self.option]
        if self.value is None:
            options[self.option], options[self.new] = 0, given
        else:
            options[self.new] = self.new_value
        now = f'{self.new}={options[self.new]}'
        return (
            f'{self.option}={given} is called {now} now; the next version refuses it.'
        )


ALIASES = (
    # Only between machines does it use ZeroMQ.
    Alias('run.transport', 'zmq', 'run.transport', 'native'),
    # `replica` is the number of a launcher that trains along.
    Alias('replica', None, 'run.first_env', scripts=('parallel_env', 'parallel_envs')),
)


def warn(note: str) -> None:
    warnings.warn(note, FutureWarning, stacklevel=3)


def renew(
    options: Mapping[str, Any], note: Callable[[str], object] = warn
) -> dict[str, Any]:
    """The options, by full name, with the names and values of today.

    note: gets one sentence per alias that was used; by default it is a FutureWarning.
    """
    renewed = dict(options)
    for alias in ALIASES:
        if alias.is_used(renewed):
            note(alias.replace(renewed))
    return renewed
