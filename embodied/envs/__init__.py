"""Environments: built-in tasks, adapters, wrappers and the registry of task names.

Everything is imported on first use, so that a worker pays only for its own suite.
"""

from typing import TYPE_CHECKING

from ..core.lazy import importer

if TYPE_CHECKING:
    from . import registry, wrappers
    from .adapters import from_dm, from_gym
    from .adapters.from_dm import FromDM
    from .adapters.from_gym import FromGym
    from .builtin import catch, dummy, reach
    from .builtin.catch import Catch
    from .builtin.dummy import Dummy
    from .builtin.reach import Reach
    from .registry import Suite, make, tasks, wrap
    from .vector.functional.contract import FunctionalEnv
    from .vector.functional.members import FunctionalVectorEnv
    from .vector.gymnasium_vector import FromGymnasiumVector

_HOMES = {
    'Catch': 'builtin.catch',
    'Dummy': 'builtin.dummy',
    'FromDM': 'adapters.from_dm',
    'FromGym': 'adapters.from_gym',
    'FromGymnasiumVector': 'vector.gymnasium_vector',
    'FunctionalEnv': 'vector.functional.contract',
    'FunctionalVectorEnv': 'vector.functional.members',
    'Reach': 'builtin.reach',
    'Suite': 'registry',
    'make': 'registry',
    'tasks': 'registry',
    'wrap': 'registry',
}
_MODULES = (*_HOMES.values(), 'wrappers')

__all__ = [
    'Catch',
    'Dummy',
    'FromDM',
    'FromGym',
    'FromGymnasiumVector',
    'FunctionalEnv',
    'FunctionalVectorEnv',
    'Reach',
    'Suite',
    'catch',
    'dummy',
    'from_dm',
    'from_gym',
    'make',
    'reach',
    'registry',
    'tasks',
    'wrap',
    'wrappers',
]


__getattr__ = importer(__name__, _HOMES, _MODULES)


def __dir__() -> list[str]:
    return sorted(__all__)
