"""Typed errors for mistakes that a user can make and mend.

Each message says what was given, what is allowed and what to do. Our own bugs are
asserts, not one of these.
"""

__all__ = [
    'CheckpointError',
    'ConfigError',
    'DreamerError',
    'EnvError',
    'FolderInUseError',
    'MissingExtraError',
    'NonFiniteError',
    'ReplayError',
    'RoleError',
    'SpaceError',
    'TrustError',
]


class DreamerError(Exception):
    """Base of all errors that the command line prints without a stack."""


class ConfigError(DreamerError):
    """An option, preset, task or combination of them cannot work."""


class MissingExtraError(ConfigError):
    """A feature needs an optional package that is not installed."""


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


class CheckpointError(DreamerError):
    """A checkpoint is missing, broken or does not fit this run."""


class NonFiniteError(DreamerError):
    """Training produced NaN or infinity; the parameters of before are kept."""


class RoleError(DreamerError):
    """A process of a distributed run failed or did not end in time."""
