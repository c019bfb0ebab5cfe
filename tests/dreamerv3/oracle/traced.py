"""Policy loss of the oracle with gradients through the model, for continuous actions.

Legend: N rollouts, H + 1 features each. What has no gradient is computed from `fixed`
parameters, which stay while `pol`, the policy's, moves: complex steps and finite
differences both derive the loss by `pol`.
"""

import numpy as np

from . import world_model
from .behavior import ENTROPY_SCALE, LAMBDA, MIN_RANGE, imagined_losses, lambda_return
from .heads import feature, policy_scores, reward_logits, value_logits
from .outputs import mix, twohot_smooth_mean

__all__ = ['traced_policy_loss']


def traced_policy_loss(pol, fixed, rollout, classes):
    """-w ((R - v) / S + sum of log pi of discrete keys * advantage + entropy) [N, H].

    rollout: deter, stoch [N, H + 1], stoch one-hot, and act [N, H + 1] sampled from the
    policy of `fixed`. classes: of each discrete action.
    """
    feat = feature(rollout['deter'], rollout['stoch'])
    scores = policy_scores(pol, feat, rollout['act'])
    states = _states(_sampled(scores, feat, fixed, rollout), fixed, rollout, classes)
    rew = twohot_smooth_mean(reward_logits(fixed['rew'], states))
    val = twohot_smooth_mean(value_logits(fixed['val'], states))
    plain = imagined_losses(fixed, feat, rollout['act'])
    con, scale = plain['con'], max(MIN_RANGE, plain['hi'] - plain['lo'])
    ret = lambda_return(rew, con, np.full_like(con, LAMBDA), val)
    gain = (ret - val[:, :-1]) / scale
    logp = sum(scores[key]['logp'][:, :-1] for key in classes)
    gain = gain + logp * (plain['ret'] - plain['val'][:, :-1]) / scale
    ent = sum(x['ent'] for x in scores.values())[:, :-1]
    return -np.cumprod(con, 1)[:, :-1] * (gain + ENTROPY_SCALE * ent)


def _sampled(scores, feat, fixed, rollout):
    """Actions as functions of the policy, with the noise that the rollout had."""
    before = policy_scores(fixed['pol'], feat, rollout['act'])
    acts = dict(rollout['act'])
    for key in acts:
        if 'mean' in scores[key]:
            noise = (acts[key] - before[key]['mean']) / before[key]['std']
            acts[key] = scores[key]['mean'] + scores[key]['std'] * noise
    return acts


def _states(acts, fixed, rollout, classes):
    """Features [N, H + 1, F] that the actions lead to; samples are straight-through."""
    action = world_model.concat_actions(acts, classes)
    limit = world_model.action_limit(
        world_model.concat_actions(rollout['act'], classes)
    )
    still = world_model.concat_actions(rollout['act'], classes)
    dyn, stoch = fixed['dyn'], rollout['stoch']
    state = before = (rollout['deter'][:, 0], stoch[:, 0])
    states = [state]
    for t in range(stoch.shape[1] - 1):
        deter = world_model.core(dyn, *state, action[:, t], limit[:, t])
        same = world_model.core(dyn, *before, still[:, t], limit[:, t])
        probs, same_probs = (_probs(dyn, x, stoch[:, t]) for x in (deter, same))
        state = (deter, stoch[:, t + 1] + probs - same_probs)
        before = (same, stoch[:, t + 1])
        states.append(state)
    deter, stoch = (np.stack(x, 1) for x in zip(*states, strict=True))
    return feature(deter, stoch)


def _probs(dyn, deter, like):
    return np.exp(mix(world_model.prior(dyn, deter).reshape(like.shape)))
