"""Output distributions of the oracle: predictions, losses, entropies, divergences.

Losses and log-probabilities keep the leading axes of their input; the elements of one
output (classes, bins, action dimensions) are summed.
"""

import numpy as np

from .layers import log_softmax, one_hot, sigmoid, symexp

__all__ = [
    'bernoulli_loss',
    'bounded_normal',
    'categorical_entropy',
    'categorical_logp',
    'kl',
    'latent_loss',
    'mix',
    'normal_entropy',
    'normal_logp',
    'twohot',
    'twohot_bins',
    'twohot_loss',
    'twohot_mean',
    'twohot_smooth_mean',
]

UNIMIX = 0.01
FREE_NATS = 1.0
BIN_LIMIT = 20.0  # bins reach from symexp(-20) to symexp(20)
MIN_STD, MAX_STD = 0.1, 1.0


def twohot_bins(count):
    """Odd number of values, exactly symmetric around a zero in the middle."""
    half = symexp(np.linspace(-BIN_LIMIT, 0, count // 2 + 1))
    return np.concatenate([half, -half[-2::-1]])


def twohot(target, bins):
    """Weights [..., bins] whose mean is the target, on its two neighbors only."""
    target = np.clip(target, bins[0], bins[-1])
    below = np.clip(np.searchsorted(bins, target, 'right') - 1, 0, len(bins) - 2)
    upper = (target - bins[below]) / (bins[below + 1] - bins[below])
    lower = (1 - upper)[..., None] * one_hot(below, len(bins))
    return lower + upper[..., None] * one_hot(below + 1, len(bins))


def twohot_mean(logits):
    """Expected bin; the halves are added pairwise, so equal weights give exactly 0."""
    count = logits.shape[-1]
    terms = np.exp(log_softmax(logits)) * twohot_bins(count)
    pairs = terms[..., : count // 2] + terms[..., : count // 2 : -1]
    return pairs.sum(-1) + terms[..., count // 2]


def twohot_smooth_mean(logits):
    """symexp(sum p symlog(bins)), the prediction that policies differentiate."""
    grid = np.linspace(-BIN_LIMIT, BIN_LIMIT, logits.shape[-1])
    x = (np.exp(log_softmax(logits)) * grid).sum(-1)
    return np.where(x.real < 0, -np.expm1(-x), np.expm1(x))


def twohot_loss(logits, target):
    weights = twohot(target, twohot_bins(logits.shape[-1]))
    return -(weights * log_softmax(logits)).sum(-1)


def bernoulli_loss(logit, target):
    """-target log p - (1 - target) log(1 - p), p = sigmoid(logit), soft targets."""
    logp = log_softmax(np.stack([np.zeros_like(logit), logit], -1))
    return -(1 - target) * logp[..., 0] - target * logp[..., 1]


def mix(logits, unimix=UNIMIX):
    """Log-probabilities of (1 - unimix) * softmax + unimix * uniform."""
    probs = np.exp(log_softmax(logits))
    return np.log((1 - unimix) * probs + unimix / logits.shape[-1])


def categorical_logp(logp, index):
    """logp: [..., classes] log-probabilities, index: [...] integers."""
    return np.take_along_axis(logp, index[..., None], -1)[..., 0]


def categorical_entropy(logp):
    return -(np.exp(logp) * logp).sum(-1)


def kl(post, prior):
    """KL(post || prior) of mixed logits [..., stoch, classes], summed over stoch."""
    post, prior = mix(post), mix(prior)
    return (np.exp(post) * (post - prior)).sum((-2, -1))


def latent_loss(post, prior):
    """Value of both `dyn` and `rep`, which differ only in what they train."""
    return np.maximum(FREE_NATS, kl(post, prior))


def bounded_normal(mean, std):
    """Mean and standard deviation from two raw outputs."""
    return np.tanh(mean), (MAX_STD - MIN_STD) * sigmoid(std + 2) + MIN_STD


def normal_logp(mean, std, x):
    return (-0.5 * ((x - mean) / std) ** 2 - np.log(std * np.sqrt(2 * np.pi))).sum(-1)


def normal_entropy(std):
    return np.log(std * np.sqrt(2 * np.pi * np.e)).sum(-1)
