"""The oracle as one function: parameters and inputs in, every output by name.

Names are those of the golden file, `params.*` and `in.*` to `out.*`, so the file's
inputs and fresh ones (`fresh`) go through the same code.
"""

from .behavior import LAMBDA, imagined_losses, lambda_return, replay_value_loss
from .heads import (
    continue_logit,
    episode_live,
    feature,
    policy_scores,
    reward_logits,
    value_logits,
)
from .layers import sigmoid
from .optimizer import optimize
from .outputs import (
    bernoulli_loss,
    categorical_entropy,
    kl,
    mix,
    twohot_loss,
    twohot_mean,
)
from .parameters import flatten, nest
from .world_model import (
    concat_actions,
    core,
    decode,
    decoder_losses,
    decoder_predictions,
    encode,
    observe_step,
    prior,
)

__all__ = ['core_scalar', 'evaluate', 'wm_scalar']


def evaluate(data: dict) -> dict:
    """data: `params.*` and `in.*` by dotted name -> all `out.*` but the gradients."""
    tree = nest(data)
    params, inputs = tree['params'], tree['in']
    imag = inputs['imag']
    outs = {
        **_latents(params, inputs),
        'dec': _decoder(params, inputs),
        'heads': _heads(params, inputs),
        'imag': imagined_losses(
            params,
            feature(imag['deter'], imag['stoch']),
            imag['act'],
        ),
        'repl': replay_value_loss(
            params,
            _features(inputs),
            inputs['obs'],
            inputs['repl']['boot'],
        ),
        'lam': {'ret': _lambda_return(inputs['lam'])},
        'opt': _optimizer(data),
        'wm_scalar': wm_scalar(params, inputs),
    }
    return {f'out.{k}': v for k, v in flatten(outs).items()}


def wm_scalar(params, inputs):
    """The function of `params` that `out.wm_grad.*` derives."""
    losses = [
        *_decoder(params, inputs)['loss'].values(),
        *_head_losses(params, inputs).values(),
    ]
    return sum(x.mean() for x in losses)


def core_scalar(params, inputs):
    """The function of `params` that `out.core_grad.*` derives."""
    return (_core(params, inputs) ** 2).sum()


def _classes(params):
    """Number of classes of each discrete key, from the layers that predict it."""
    layers = params['dec'].get('vec', {}) | params['pol']['head']
    return {k: v['logits']['bias'].size for k, v in layers.items() if 'logits' in v}


def _first_action(params, inputs):
    act = {k: v[:, 0] for k, v in inputs['act'].items()}
    return concat_actions(act, _classes(params))


def _core(params, inputs):
    state = inputs['core']
    action = _first_action(params, inputs)
    return core(params['dyn'], state['deter'], state['stoch'], action)


def _latents(params, inputs):
    state, logits = inputs['core'], inputs['kl']
    shape = state['stoch'].shape
    tokens = encode(params['enc'], inputs['obs'], _classes(params))
    deter = _core(params, inputs)
    post_deter, post = observe_step(
        params['dyn'],
        state['deter'],
        state['stoch'],
        _first_action(params, inputs),
        tokens[:, 0],
        inputs['observe']['reset'],
    )
    return {
        'enc': {'tokens': tokens},
        'core': {'deter': deter},
        'prior': {'logit': prior(params['dyn'], deter).reshape(shape)},
        'observe': {'deter': post_deter, 'logit': post.reshape(shape)},
        'kl': {
            'per_step': kl(logits['post'], logits['prior']),
            'entropy_post': categorical_entropy(mix(logits['post'])).sum(-1),
        },
    }


def _decoder(params, inputs):
    feat, obs = inputs['feat'], inputs['obs']
    outs = decode(params['dec'], feat['deter'], feat['stoch'])
    return {'loss': decoder_losses(outs, obs), 'pred': decoder_predictions(outs, obs)}


def _features(inputs):
    return feature(inputs['feat']['deter'], inputs['feat']['stoch'])


def _head_losses(params, inputs):
    obs, feat = inputs['obs'], _features(inputs)
    return {
        'rew_loss': twohot_loss(reward_logits(params['rew'], feat), obs['reward']),
        'con_loss': bernoulli_loss(
            continue_logit(params['con'], feat), episode_live(obs['is_terminal'])
        ),
    }


def _heads(params, inputs):
    feat = _features(inputs)
    outs = {
        **_head_losses(params, inputs),
        'rew_pred': twohot_mean(reward_logits(params['rew'], feat)),
        'con_prob': sigmoid(continue_logit(params['con'], feat)),
        'val_pred': twohot_mean(value_logits(params['val'], feat)),
        'slowval_pred': twohot_mean(value_logits(params['slowval'], feat)),
    }
    for key, scores in policy_scores(params['pol'], feat, inputs['act']).items():
        for name in ('logp', 'ent'):
            outs[f'pol_{name}_{key}'] = scores.pop(name)
        outs |= {f'pol_{key}_{name}': value for name, value in scores.items()}
    return outs


def _lambda_return(x):
    cont = LAMBDA * (1 - x['last'])
    return lambda_return(x['rew'], episode_live(x['term']), cont, x['boot'])


def _optimizer(data):
    prefix = 'in.opt.params.'
    outs = {}
    for key in (k.removeprefix(prefix) for k in data if k.startswith(prefix)):
        grads = [data[k] for k in sorted(data) if _is_grad(k, key)]
        for index, param in enumerate(optimize(data[prefix + key], grads)):
            outs[f'params{index + 1}.{key}'] = param
    return outs


def _is_grad(name, key):
    return name.startswith('in.opt.grads') and name.endswith(f'.{key}')
