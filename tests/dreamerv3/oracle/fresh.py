"""Fresh random parameters and inputs, by the names of the golden file."""

import numpy as np

from .parameters import Problem, flatten, random_params

__all__ = ['fresh']


def fresh(rng, problem: Problem, batch=2, length=5) -> dict:
    """Random `params.*` and `in.*` in float32, for `evaluate` and for an agent."""
    params = {f'params.{k}': v for k, v in random_params(rng, problem).items()}
    x, lead = problem, (batch, length)
    normal = lambda *shape: rng.standard_normal(shape).astype(np.float32)
    flags = lambda *shape: rng.random(shape) < 0.3
    act = lambda lead: {
        **{k: rng.integers(0, n, lead, np.int32) for k, n in x.discrete.items()},
        **{k: 2 * normal(*lead, n) for k, n in x.continuous.items()},
    }
    states = lambda lead: {
        'deter': normal(*lead, x.deter),
        'stoch': np.eye(x.classes, dtype=np.float32)[
            rng.integers(0, x.classes, (*lead, x.stoch))
        ],
    }
    obs = {
        **{k: 5 * normal(*lead, n) for k, n in x.vectors.items()},
        **{k: rng.integers(0, n, lead, np.int32) for k, n in x.tokens.items()},
        'reward': normal(*lead),
        'is_first': flags(*lead),
        'is_last': flags(*lead),
        'is_terminal': flags(*lead),
    }
    if x.image:
        obs['image'] = rng.integers(0, 256, (*lead, *x.image), np.uint8)
    inputs = {
        'obs': obs,
        'act': act(lead),
        'core': states((batch,)),
        'observe': {'reset': flags(batch)},
        'kl': {k: normal(*lead, x.stoch, x.classes) for k in ('post', 'prior')},
        'feat': states(lead),
        'imag': {**states(lead), 'act': act(lead)},
        'repl': {'boot': normal(*lead)},
        'lam': {
            **{k: normal(*lead) for k in ('rew', 'val', 'boot')},
            **{k: flags(*lead) for k in ('last', 'term')},
        },
        'opt': {
            'params': {'a': normal(5, 4), 'b': np.zeros(4, np.float32)},
            **{f'grads{i}': {'a': normal(5, 4), 'b': normal(4)} for i in range(4)},
        },
    }
    return params | {f'in.{k}': v for k, v in flatten(inputs).items()}
