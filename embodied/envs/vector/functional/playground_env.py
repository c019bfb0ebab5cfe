"""MuJoCo Playground: the control suite, legged robots and hands in MJX."""

import difflib
import importlib

from ....core.errors import ConfigError
from ...extras import check
from ..seeds import Seeds
from .brax_env import FromBrax
from .for_agents import for_agents
from .members import FunctionalVectorEnv

__all__ = ['make_playground']


def make_playground(
    name: str,
    seed: Seeds = None,
    num: int = 16,
    length: int = 0,
    impl: str = 'jax',
) -> FunctionalVectorEnv:
    """`num` members of the environment `name`, such as `CartpoleBalance`.

    Their observations are vectors. length: 0 takes that of the environment's
    configuration. impl: jax, which runs everywhere, or warp for GPUs of NVIDIA.
    """
    check('mujoco_playground', 'playground')
    registry = importlib.import_module('mujoco_playground').registry
    if name not in registry.ALL_ENVS:
        close = difflib.get_close_matches(name, registry.ALL_ENVS, n=3)
        hint = f' Closest names: {", ".join(close)}.' if close else ''
        raise ConfigError(f'MuJoCo Playground has no environment {name!r}.{hint}')
    settings = registry.get_default_config(name)
    settings.impl = impl
    env = registry.load(name, config=settings)
    limit = length or settings.episode_length
    return FunctionalVectorEnv(for_agents(FromBrax(env), length=limit), num, seed)
