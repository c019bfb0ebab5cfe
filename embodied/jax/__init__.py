"""What agents need to run on JAX. Only agents import this package."""

from . import nets, outputs
from .agent import Agent
from .devices import Devices
from .distributed import connect
from .model import Model
from .programs import choose_device, setup

__all__ = [
    'Agent',
    'Devices',
    'Model',
    'choose_device',
    'connect',
    'nets',
    'outputs',
    'setup',
]
