"""Typed errors for mistakes that a user can make and correct.

Each message says what was given, what is allowed and what to do. Our own bugs are
asserts, not one of these.
"""

from collections.abc import Iterable

__all__ = [
    'CheckpointError',
    'ConfigError',
    'DreamerError',
    'EnvError',
    'FolderInUseError',
    'MembersError',
    'MissingExtraError',
    'NonFiniteError',
    'ReplayError',
    'RoleError',
    'RowsError',
    'SpaceError',
    'StorageError',
    'TrustError',
]


class DreamerError(Exception):
    """Base of all errors that the command line prints without a stack.

    final: it is of no use to try again before the user has done something.
    transient: it goes away by itself.
    errno, place, origin: of an error that stands for one in another process: its
    number, the line of code, and the server that it was raised in.
    """

    final = False
    transient = False
    errno: int | None = None
    place = ''
    origin = ''

    @property
    def brief(self) -> str:
        """The message, without a stack of another process that says nothing more."""
        return str(self)


class ConfigError(DreamerError):
    """An option, preset, task or combination of them cannot work."""

    final = True


class MembersError(ConfigError):
    """A vector environment has another number of members than was planned."""

    def __init__(self, message: str, members: int = 0) -> None:
        super().__init__(message)
        self.members = members


class MissingExtraError(ConfigError):
    """A feature needs an optional package that is not installed."""


class RowsError(ConfigError):
    """An environment worker sent rows that do not fit the run it has joined.

    rows: numbers of those that do not fit, in the batch they are part of; empty if all
    of the batch do not.
    """

    def __init__(self, message: str, rows: Iterable[int] = ()) -> None:
        super().__init__(message)
        self.rows = tuple(rows)


class TrustError(ConfigError):
    """Going on would run code that came with a folder, which needs --trust."""


class EnvError(DreamerError):
    """An environment failed or broke its contract."""


class SpaceError(EnvError):
    """A value does not lie in the space that was declared for its key."""


class ReplayError(DreamerError):
    """The replay was asked for something that it cannot hold or serve."""


class FolderInUseError(ReplayError):
    """Another process writes to the folder, or has died and still counts as alive."""

    transient = True


class CheckpointError(DreamerError):
    """A checkpoint is missing, broken or does not fit this run."""

    final = True


class StorageError(DreamerError):
    """Files cannot be written: the disk is full, over quota or read-only, or this user
    may not write there."""

    final = True


class NonFiniteError(DreamerError):
    """Training produced NaN or infinity; the parameters of before are kept."""


class RoleError(DreamerError):
    """A process of a distributed run failed or did not end in time."""
