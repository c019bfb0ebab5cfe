"""The whole training loss in float64 NumPy, on given samples, with its derivatives.

Derivatives are complex steps (see oracle.derivative): the imaginary part follows the
parameters, so stopping a gradient is taking the real part.
"""

import numpy as np
import oracle
from oracle import behavior, heads, outputs, traced, world_model

__all__ = ['SCALES', 'observe', 'rollout_error', 'training_losses', 'weighted_sum']

SCALES = {
    'rew': 1.0,
    'con': 1.0,
    'dyn': 1.0,
    'rep': 0.1,
    'policy': 1.0,
    'value': 1.0,
    'repval': 0.3,
}
REC_SCALE = 1.0


def weighted_sum(losses: dict):
    return sum(SCALES.get(k, REC_SCALE) * v.mean() for k, v in losses.items())


def training_losses(
    params, obs, previous, start, stoch, rollout, backprop=False
) -> dict:
    """Losses by name, [B, T] and [N, H].

    obs [B, T], previous: actions [B, T] before each step, start: (deter, stoch) [B]
    before the first. stoch: one-hot samples [B, T, S, C] of the posterior. rollout:
    dict of deter, stoch [N, H + 1] and act [N, H + 1] imagined from all B * T states.
    backprop: the policy gets gradients through the model.
    """
    deter, stoch, post = observe(params, obs, previous, start, stoch)
    prior = world_model.prior(params['dyn'], deter).reshape(post.shape)
    decoded = world_model.decode(params['dec'], deter, stoch)
    feat = heads.feature(deter, stoch)
    live = heads.episode_live(obs['is_terminal'])
    losses = {
        'dyn': np.maximum(outputs.FREE_NATS, outputs.kl(post.real, prior)),
        'rep': np.maximum(outputs.FREE_NATS, outputs.kl(post, prior.real)),
        'rew': outputs.twohot_loss(
            heads.reward_logits(params['rew'], feat), obs['reward']
        ),
        'con': outputs.bernoulli_loss(heads.continue_logit(params['con'], feat), live),
        **{f'rec/{k}': v for k, v in world_model.decoder_losses(decoded, obs).items()},
    }
    losses |= _behavior_losses(params, obs, feat, rollout)
    if backprop:
        fixed, classes = _real(params), _classes(params)
        classes = {k: v for k, v in classes.items() if k in rollout['act']}
        losses['policy'] = traced.traced_policy_loss(
            params['pol'], fixed, rollout, classes
        )
    return losses


def observe(params, obs, previous, start, stoch):
    """deter [B, T, D], straight-through stoch and posterior logits [B, T, S, C]."""
    tokens = world_model.encode(params['enc'], obs, _classes(params))
    action = world_model.concat_actions(previous, _classes(params))
    state, steps = start, []
    for t in range(tokens.shape[1]):
        deter, logit = world_model.observe_step(
            params['dyn'], *state, action[:, t], tokens[:, t], obs['is_first'][:, t]
        )
        logit = logit.reshape(stoch[:, t].shape)
        probs = np.exp(outputs.mix(logit))
        state = (deter, stoch[:, t] + probs - probs.real)
        steps.append((*state, logit))
    return tuple(np.stack(x, 1) for x in zip(*steps, strict=True))


def rollout_error(params, rollout) -> float:
    """How far the deter of a rollout [N, H + 1] is from the core's recursion."""
    deter, stoch = rollout['deter'], rollout['stoch']
    action = world_model.concat_actions(rollout['act'], _classes(params))
    errors = [
        oracle.relative_error(
            deter[:, t + 1],
            world_model.core(params['dyn'], deter[:, t], stoch[:, t], action[:, t]),
        )
        for t in range(deter.shape[1] - 1)
    ]
    return max(errors)


def _behavior_losses(params, obs, feat, rollout) -> dict:
    fixed = _real(params)
    imagined = heads.feature(rollout['deter'], rollout['stoch'])
    score = lambda pol: behavior.imagined_losses(
        fixed | {'pol': pol}, imagined, rollout['act']
    )
    ret, con = (score(fixed['pol'])[k] for k in ('ret', 'con'))
    weight = np.cumprod(con, 1)[:, :-1]
    boot = ret[:, 0].reshape(obs['reward'].shape)
    real_feat = feat.real
    replayed = behavior.replay_value_loss(fixed, real_feat, obs, boot)
    nll = lambda feat, real_feat, ret: sum(
        outputs.twohot_loss(heads.value_logits(params['val'], feat)[:, :-1], target)
        for target in (ret, _mean(fixed['slowval'], real_feat)[:, :-1])
    )
    return {
        'policy': score(params['pol'])['policy'],
        'value': weight * nll(imagined, imagined, ret),
        'repval': (1.0 - obs['is_last'][:, :-1])
        * nll(feat, real_feat, replayed['ret']),
    }


def _mean(value, feat):
    return outputs.twohot_mean(heads.value_logits(value, feat))


def _real(tree):
    if isinstance(tree, dict):
        return {k: _real(v) for k, v in tree.items()}
    return tree.real


def _classes(params):
    heads = params['dec'].get('vec', {}) | params['pol']['head']
    return {k: v['logits']['bias'].size for k, v in heads.items() if 'logits' in v}
