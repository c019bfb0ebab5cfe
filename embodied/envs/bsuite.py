"""bsuite: small experiments, each of which asks one question about an agent."""

import contextlib
import importlib
import inspect
import io

from ..core.errors import ConfigError
from .extras import require
from .from_dm import FromDM

__all__ = ['make_bsuite']

LARGEST_SEED = 2**32 - 1


def make_bsuite(name: str, seed: int | None = None) -> FromDM:
    """The experiment `name`, such as `catch/0`, with a seed of our own if it has one.

    The number of episodes that it asks for is `dm_env.bsuite_num_episodes`.
    """
    bsuite = require('bsuite', 'bsuite')
    sweep = importlib.import_module('bsuite.sweep')
    if name not in sweep.SETTINGS:
        experiments = sorted({known.partition('/')[0] for known in sweep.SETTINGS})
        raise ConfigError(
            f'bsuite has no experiment {name!r}. Names are like catch/0, with '
            f'{", ".join(experiments)}.'
        )
    experiment = name.partition('/')[0]
    module = importlib.import_module(f'bsuite.experiments.{experiment}.{experiment}')
    settings = dict(sweep.SETTINGS[name])
    if seed is not None and 'seed' in inspect.signature(module.load).parameters:
        settings['seed'] = seed % LARGEST_SEED
    with contextlib.redirect_stdout(io.StringIO()):  # It says what it loads.
        env = bsuite.load(experiment, settings)
    return FromDM(env)
