"""Heads of the oracle: reward, continue, value and policy on the model state."""

import numpy as np

from .layers import linear, mlp
from .outputs import (
    bounded_normal,
    categorical_entropy,
    categorical_logp,
    mix,
    normal_entropy,
    normal_logp,
)

__all__ = [
    'continue_logit',
    'episode_live',
    'feature',
    'policy_scores',
    'reward_logits',
    'value_logits',
]

HORIZON = 333


def feature(deter, stoch):
    """Input of all heads: [..., D + S * C]."""
    return np.concatenate([deter, stoch.reshape((*deter.shape[:-1], -1))], -1)


def episode_live(is_terminal):
    """Discount after a step, 0 at the end: what the continue head predicts."""
    return (1 - is_terminal) * (1 - 1 / HORIZON)


def reward_logits(p, feat):
    return linear(p['head']['logits'], mlp(p['mlp'], feat))


def value_logits(p, feat):
    return linear(p['head']['logits'], mlp(p['mlp'], feat))


def continue_logit(p, feat):
    return linear(p['head']['logit'], mlp(p['mlp'], feat))[..., 0]


def policy_scores(p, feat, act, unimix=0.0):
    """Per action key: parameters, log-probability and entropy, [...] each."""
    x = mlp(p['mlp'], feat)
    scores = {}
    for key, head in p['head'].items():
        if 'logits' in head:
            logits = linear(head['logits'], x)
            logp = mix(logits, unimix)
            scores[key] = {
                'logits': logits,
                'logp': categorical_logp(logp, act[key]),
                'ent': categorical_entropy(logp),
            }
        else:
            mean, std = bounded_normal(
                linear(head['mean'], x), linear(head['stddev'], x)
            )
            scores[key] = {
                'mean': mean,
                'std': std,
                'logp': normal_logp(mean, std, act[key]),
                'ent': normal_entropy(std),
            }
    return scores
