"""World model of the oracle: encoder, recurrent state-space model, decoder, losses.

Legend: B, T leading axes, D deter, S x C stoch. `p` is one module's nested parameters.
`classes` gives the number of classes of each discrete key.
"""

import numpy as np

from .layers import (
    block_linear,
    conv,
    layer,
    linear,
    log_softmax,
    max_pool,
    mlp,
    one_hot,
    rms_norm,
    sigmoid,
    silu,
    symlog,
    upsample,
)
from .outputs import categorical_logp

__all__ = [
    'CONTROL_KEYS',
    'action_limit',
    'concat_actions',
    'core',
    'decode',
    'decoder_losses',
    'decoder_predictions',
    'encode',
    'observe_step',
    'posterior',
    'prior',
]

CONTROL_KEYS = ('reward', 'is_first', 'is_last', 'is_terminal')


def encode(p, obs, classes):
    """obs: dict of [B, T, ...] -> tokens [B, T, vector part + image part]."""
    keys = sorted(set(obs) - set(CONTROL_KEYS))
    images = [obs[k] for k in keys if _is_image(obs[k])]
    vectors = [_vector(obs[k], classes.get(k)) for k in keys if not _is_image(obs[k])]
    lead = obs['is_first'].shape
    tokens = []
    if vectors:
        x = np.concatenate(vectors, -1)
        for index in range(_count(p, 'mlp')):
            x = layer(p, f'mlp{index}', x)
        tokens.append(x)
    if images:
        x = np.concatenate(images, -1) / 255 - 0.5
        x = x.reshape((-1, *x.shape[-3:]))
        for index in range(_count(p, 'cnn')):
            x = max_pool(conv(p[f'cnn{index}'], x))
            x = silu(rms_norm(p[f'cnn{index}norm'], x))
        tokens.append(x.reshape((*lead, -1)))
    return np.concatenate(tokens, -1)


def concat_actions(act, classes):
    """Discrete keys one-hot, continuous raw, sorted by key. -> [..., A]."""
    return np.concatenate(
        [one_hot(act[k], classes[k]) if k in classes else act[k] for k in sorted(act)],
        -1,
    )


def core(p, deter, stoch, action, limit=None):
    """deter: [B, D], stoch: [B, S, C], action: [B, A] -> deter' [B, D].

    limit: [B, A], what the action is divided by; its own magnitude where above 1.
    """
    blocks = len(p['dynhid0']['kernel'])
    action = action / (action_limit(action) if limit is None else limit)
    inputs = [deter, stoch.reshape((len(stoch), -1)), action]
    x = np.concatenate([layer(p, f'dynin{i}', x) for i, x in enumerate(inputs)], -1)
    x = np.repeat(x[:, None], blocks, 1)
    x = np.concatenate([deter.reshape((len(deter), blocks, -1)), x], -1)
    x = layer(p, 'dynhid0', x.reshape((len(deter), -1)), block_linear)
    x = block_linear(p['dyngru'], x).reshape((len(deter), blocks, 3, -1))
    reset, cand, update = (x[:, :, i].reshape(deter.shape) for i in range(3))
    cand = np.tanh(sigmoid(reset) * cand)
    update = sigmoid(update - 1)
    return update * cand + (1 - update) * deter


def action_limit(action):
    """What actions are divided by, to be within -1 and 1."""
    return np.maximum(1, np.abs(action))


def prior(p, deter):
    """Logits [..., S * C], before the uniform mix."""
    return linear(p['priorlogit'], layer(p, 'prior1', layer(p, 'prior0', deter)))


def posterior(p, deter, tokens):
    """Logits [..., S * C], before the uniform mix."""
    x = np.concatenate([deter, tokens], -1)
    return linear(p['obslogit'], layer(p, 'obs0', x))


def observe_step(p, deter, stoch, action, tokens, reset):
    """Previous state and action, this step's tokens -> deter', posterior logits."""
    keep = 1.0 - reset
    deter = core(
        p, deter * keep[:, None], stoch * keep[:, None, None], action * keep[:, None]
    )
    return deter, posterior(p, deter, tokens)


def decode(p, deter, stoch):
    """Raw outputs per key: logits, symlog values, or images in 0..1."""
    lead = deter.shape[:-1]
    stoch = stoch.reshape((*lead, -1))
    outs = {}
    if 'vec' in p:
        x = mlp(p['mlp'], np.concatenate([stoch, deter], -1))
        for key, head in p['vec'].items():
            outs[key] = linear(head.get('pred') or head['logits'], x)
    if 'sp0' in p:
        image = _decode_image(p, deter.reshape((-1, deter.shape[-1])), stoch)
        outs['image'] = image.reshape((*lead, *image.shape[1:]))
    return outs


def _decode_image(p, deter, stoch):
    blocks = len(p['sp0']['kernel'])
    channels = len(p['spnorm']['scale'])
    side = round((p['sp0']['bias'].size / channels) ** 0.5)
    x = block_linear(p['sp0'], deter).reshape(
        (-1, blocks, side, side, channels // blocks)
    )
    x = np.moveaxis(x, 1, 3).reshape((-1, side, side, channels))
    y = linear(p['sp2'], layer(p, 'sp1', stoch.reshape((len(deter), -1))))
    x = silu(rms_norm(p['spnorm'], x + y.reshape(x.shape)))
    for index in reversed(range(_count(p, 'conv'))):
        x = layer(p, f'conv{index}', upsample(x), conv)
    return sigmoid(conv(p['imgout'], upsample(x)))


def decoder_losses(outs, obs):
    """Per key [B, T], summed over the elements of the key."""
    lead = obs['is_first'].ndim
    losses = {}
    for key, out in outs.items():
        if _is_image(obs[key]):
            error = (out - obs[key] / 255) ** 2
        elif _is_discrete(obs[key]):
            error = -categorical_logp(log_softmax(out), obs[key])
        else:
            error = (out - symlog(obs[key])) ** 2
        losses[key] = error.sum(tuple(range(lead, error.ndim)))
    return losses


def decoder_predictions(outs, obs):
    """Images in 0..1, class indices, or vectors still in symlog space."""
    discrete = {k for k in outs if _is_discrete(obs[k]) and not _is_image(obs[k])}
    return {k: v.argmax(-1) if k in discrete else v for k, v in outs.items()}


def _is_image(x):
    return x.dtype == np.uint8 and x.ndim >= 5


def _is_discrete(x):
    return np.issubdtype(x.dtype, np.integer)


def _vector(x, classes):
    return one_hot(x, classes) if classes else symlog(x)


def _count(p, prefix):
    return sum(k.startswith(prefix) and k[len(prefix) :].isdigit() for k in p)
