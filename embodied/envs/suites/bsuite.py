"""bsuite: small experiments, each of which asks one question about an agent."""

import contextlib
import importlib
import inspect
import io

import numpy as np

from ...core.errors import ConfigError
from ..adapters.from_dm import FromDM
from ..extras import require

__all__ = ['make_bsuite']

LARGEST_SEED = 2**32 - 1


def make_bsuite(name: str, seed: int | None = None) -> FromDM:
    """The experiment `name`, such as `catch/0`, with a seed of our own.

    The number of episodes that it asks for is `dm_env.bsuite_num_episodes`.
    """
    require('bsuite', 'bsuite')
    sweep = importlib.import_module('bsuite.sweep')
    if name not in sweep.SETTINGS:
        experiments = sorted({known.partition('/')[0] for known in sweep.SETTINGS})
        raise ConfigError(
            f'bsuite has no experiment {name!r}. Names are like catch/0, with '
            f'{", ".join(experiments)}.'
        )
    experiment = name.partition('/')[0]
    constructors = importlib.import_module('bsuite.bsuite')
    make = constructors.EXPERIMENT_NAME_TO_ENVIRONMENT[experiment]
    settings = dict(sweep.SETTINGS[name])
    takes_seed = 'seed' in inspect.signature(make).parameters
    if seed is not None and takes_seed:
        settings['seed'] = seed % LARGEST_SEED
    with contextlib.redirect_stdout(io.StringIO()):  # It says what it loads.
        env = make(**settings)
    if seed is not None and not takes_seed and hasattr(env, '_rng'):
        # The winds of deep_sea_stochastic: its seed is not to be reached otherwise.
        env._rng = np.random.RandomState(seed % LARGEST_SEED)
    return FromDM(env)
