"""Options of the Ray engine: the cluster, what roles want, where data is kept."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ['DATA_ROLES', 'PINNED', 'SHARED', 'RayOptions', 'Wanted']

SHARED, PINNED = 'shared', 'pinned'  # storage
DATA_ROLES = ('agent', 'replay', 'logger')  # which keep something; all others are env


class Wanted(NamedTuple):
    """What the node of a role must have; comments are in dreamerv3/configs.yaml."""

    cpus: float
    gpus: float
    gb: float
    resource: str


@dataclasses.dataclass(frozen=True)
class RayOptions:
    """The group `ray` of the config."""

    address: str
    storage: str
    agent: Wanted
    replay: Wanted
    logger: Wanted
    env: Wanted

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> 'RayOptions':
        roles = {name: Wanted(**options[name]) for name in (*DATA_ROLES, 'env')}
        return cls(options['address'], options['storage'], **roles)

    def wanted(self, role: str) -> Wanted:
        """By the name of a role, such as env3."""
        return getattr(self, role if role in DATA_ROLES else 'env')
