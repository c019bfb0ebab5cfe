"""Factories of vector environments, in a module that runs can import."""

import functools

from functional_walk import Walk
from together import Together

from embodied.envs.builtin.catch import Catch
from embodied.envs.vector.functional.members import FunctionalVectorEnv

MEMBERS = 4


def catch(seed=0):
    """Last rows come beside first ones."""
    makes = [functools.partial(Catch, 16, seed=seed + i) for i in range(MEMBERS)]
    return Together(makes, final=True)


def walk(seed=0):
    return FunctionalVectorEnv(Walk(), MEMBERS, seed)
