"""Behavior of the oracle: returns, their range, and the losses of policy and value.

Legend: N rollouts, H + 1 features each; B, T replayed steps.
"""

import numpy as np

from .heads import (
    continue_logit,
    episode_live,
    policy_scores,
    reward_logits,
    value_logits,
)
from .layers import sigmoid
from .outputs import twohot_loss, twohot_mean

__all__ = [
    'LAMBDA',
    'imagined_losses',
    'lambda_return',
    'replay_value_loss',
    'update_range',
]

LAMBDA = 0.95
ENTROPY_SCALE = 3e-4
RANGE_RATE = 0.01
PERCENTILES = (5, 95)
MIN_RANGE = 1.0


def lambda_return(rew, live, cont, boot):
    """R_t = r_{t+1} + live_{t+1} ((1 - cont_{t+1}) boot_{t+1} + cont_{t+1} R_{t+1}).

    All inputs [B, T]; R has T - 1 steps, as the recursion starts from R_T = boot_T.
    """
    ret = boot[:, -1]
    rets = []
    for t in reversed(range(1, rew.shape[1])):
        tail = (1 - cont[:, t]) * boot[:, t] + cont[:, t] * ret
        ret = rew[:, t] + live[:, t] * tail
        rets.append(ret)
    return np.stack(rets[::-1], 1)


def update_range(state, ret):
    """state: (lo, hi), moving averages of the percentiles over all of `ret`."""
    news = np.percentile(ret, PERCENTILES)
    return tuple(
        (1 - RANGE_RATE) * old + RANGE_RATE * new
        for old, new in zip(state, news, strict=True)
    )


def imagined_losses(params, feat, act, state=(0.0, 0.0), unimix=0.0):
    """feat: [N, H + 1, F] -> dict of predictions [N, H + 1] and losses [N, H]."""
    rew = twohot_mean(reward_logits(params['rew'], feat))
    con = sigmoid(continue_logit(params['con'], feat))
    logits = value_logits(params['val'], feat)
    val = twohot_mean(logits)
    slow = twohot_mean(value_logits(params['slowval'], feat))
    weight = np.cumprod(con, 1)[:, :-1]
    ret = lambda_return(rew, con, np.full_like(con, LAMBDA), val)
    lo, hi = update_range(state, ret)
    adv = (ret - val[:, :-1]) / max(MIN_RANGE, hi - lo)
    scores = policy_scores(params['pol'], feat, act, unimix).values()
    logp = sum(x['logp'] for x in scores)[:, :-1]
    ent = sum(x['ent'] for x in scores)[:, :-1]
    return {
        'rew': rew,
        'con': con,
        'val': val,
        'ret': ret,
        'lo': lo,
        'hi': hi,
        'adv_mean': adv.mean(),
        'policy': -weight * (logp * adv + ENTROPY_SCALE * ent),
        'value': weight * _value_loss(logits[:, :-1], ret, slow[:, :-1]),
    }


def replay_value_loss(params, feat, obs, boot):
    """feat: [B, T, F], boot: [B, T] -> dict of ret and repval, [B, T - 1] each."""
    live = episode_live(obs['is_terminal'])
    cont = LAMBDA * (1 - obs['is_last'])
    ret = lambda_return(obs['reward'], live, cont, boot)
    logits = value_logits(params['val'], feat)[:, :-1]
    slow = twohot_mean(value_logits(params['slowval'], feat))[:, :-1]
    weight = 1.0 - obs['is_last'][:, :-1]
    return {'ret': ret, 'repval': weight * _value_loss(logits, ret, slow)}


def _value_loss(logits, ret, slow):
    return twohot_loss(logits, ret) + twohot_loss(logits, slow)
