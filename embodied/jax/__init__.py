"""What agents need to run on JAX. Only agents import this package."""

from . import nets, outputs
from .agent import Agent
from .model import Model
from .programs import setup

__all__ = ['Agent', 'Model', 'nets', 'outputs', 'setup']
