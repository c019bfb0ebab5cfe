"""What options add to the networks of an agent, besides what an own agent adds."""

import dataclasses
from typing import Any

from embodied.core.errors import ConfigError

from ..model import Nets

__all__ = ['with_own']


def with_own(nets: Nets, name: str, value: Any) -> Nets:
    """With parameters more, as `own.NAME`."""
    if name in nets.own:
        raise ConfigError(
            f'The own agent has networks in `own` named {name!r}, which is the name of '
            "an option's parameters. Give them another name."
        )
    return dataclasses.replace(nets, own={**nets.own, name: value})
