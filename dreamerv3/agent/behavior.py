"""Behavior: imagined rollouts and the losses of policy and value.

N imagined starts, H imagined steps; features have H + 1 steps because the first is
the state that the rollout starts from. Imagined arrays have time first, as the loop
puts them out: turning the features around would cost more than a head.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from embodied.jax import outputs, recurrence

from .actions import Actions, Dists, Values
from .networks.rssm import RSSM, State
from .returns import Range, lambda_return, update_range
from .rollout import Rollout

__all__ = ['imagine', 'imagined_losses', 'replayed_value_loss', 'through_model']

sg = jax.lax.stop_gradient

# imagine's arguments -> its results
Loop: TypeAlias = Callable[
    [RSSM, Any, State, tuple[jax.Array, Values]], tuple[State, Values]
]


def imagine(
    dyn: RSSM,
    policy: Any,
    start: State,
    noise: tuple[jax.Array, Values],
    loop: Loop | None = None,
) -> tuple[State, Values]:
    """Rolls the policy out in the model, without gradients.

    start: [N, ...]. noise: Gumbel [H, N, S, C] for the states and [H, N, ...] for the
    actions. Returns states [H + 1, N, ...] and actions [H, N, ...]. loop: of these
    sizes, instead of the plain one.
    """
    if loop is not None:
        return sg(loop(dyn, policy, start, noise))
    rollout = Rollout(dyn, policy, start.deter.dtype)

    def step(carry: Any, noise: tuple[jax.Array, Values]):
        carry, action = rollout.step(carry, recurrence.taken(noise))
        return carry, (carry.state, action)

    unroll = recurrence.unroll(len(noise[0]))
    _, (states, drawn) = jax.lax.scan(step, rollout.begin(start), noise, unroll=unroll)
    states = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), start, states)
    return sg(states), sg(policy.actions.settle(drawn))


def through_model(
    dyn: RSSM,
    actions: Actions,
    policy: Dists,
    rollout: tuple[State, Values],
    noise: tuple[jax.Array, Values],
) -> State:
    """States [H + 1, N, ...] of a rollout, differentiable by its continuous actions.

    policy: predictions [H, N], of which the actions of the rollout are samples with
    this noise. Their inputs must have no gradient: a policy gets its gradient through
    what its action changes, not through what its later actions make of that.
    """
    states, acts = rollout
    state_noise, action_noise = noise
    chosen = {k: policy[k].sample(action_noise[k]) for k in actions.continuous}
    vector = actions.vector({**acts, **chosen}, states.deter.dtype)
    return sg(dyn).follow(states, vector, state_noise)


def imagined_losses(
    policy: Dists,
    value: outputs.TwoHot,
    slow: outputs.TwoHot,
    reward: jax.Array,
    cont: jax.Array,
    logp: jax.Array,
    ranges: Range,
    config: Any,
    traced: tuple[jax.Array, jax.Array] | None = None,
) -> tuple[dict[str, jax.Array], jax.Array, Range, dict[str, jax.Array]]:
    """Losses {policy, value} [H, N], returns [H, N], the new range, and metrics.

    policy, slow: predictions [H, N]; value, reward, cont: [H + 1, N]; cont is a
    probability with the discount in it. logp: [H, N], log pi of the taken actions.
    traced: reward and value [H + 1, N] again, as the policy can differentiate them;
    then logp is of the actions that are not trained so.
    """
    # v is the fast value everywhere; the slow one only regularizes it.
    val = sg(value.pred())
    ret = lambda_return(reward.T, cont.T, config.lam, val.T).T
    ranges = update_range(ranges, ret, config.retnorm)
    scale = jnp.maximum(config.retnorm.limit, ranges.high - ranges.low)
    adv = (ret - val[:-1]) / scale
    # w_t = c_0 c_1 ... c_t: starts in terminal states weigh almost nothing.
    weight = jnp.cumprod(cont, 0)[:-1]
    entropy = {name: dist.entropy() for name, dist in policy.items()}
    gain = logp * adv
    if traced is not None:
        gain += _traced_advantage(*traced, sg(cont), config.lam) / sg(scale)
    losses = {
        'policy': -weight * (gain + config.actent * sum(entropy.values())),
        'value': weight * _value_loss(value[:-1], ret, slow.pred()),
    }
    metrics = {
        'adv_mean': adv.mean(),
        'adv_mag': jnp.abs(adv).mean(),
        'reward': reward.mean(),
        'cont': cont.mean(),
        'value': val.mean(),
        'return': ret.mean(),
        'return_range': ranges.high - ranges.low,
        'weight': weight.mean(),
        **{f'entropy/{name}': x.mean() for name, x in entropy.items()},
    }
    return losses, ret, ranges, metrics


def replayed_value_loss(
    value: outputs.TwoHot,
    slow: outputs.TwoHot,
    boot: jax.Array,
    reward: jax.Array,
    is_last: jax.Array,
    is_terminal: jax.Array,
    config: Any,
) -> tuple[jax.Array, jax.Array]:
    """Loss and returns [B, T - 1] on replayed steps.

    value, slow: predictions [B, T - 1]; the rest [B, T]. boot: imagined returns.
    """
    live = (1 - is_terminal.astype(jnp.float32)) * (1 - 1 / config.horizon)
    mix = config.lam * (1 - is_last.astype(jnp.float32))
    ret = lambda_return(reward, live, mix, boot)
    weight = 1 - is_last[:, :-1].astype(jnp.float32)
    return weight * _value_loss(value, ret, slow.pred()), ret


def _traced_advantage(
    reward: jax.Array, value: jax.Array, cont: jax.Array, lam: float
) -> jax.Array:
    """R - v [H, N], both with gradients; all [H + 1, N]."""
    return lambda_return(reward.T, cont.T, lam, value.T).T - value[:-1]


def _value_loss(value: outputs.TwoHot, ret: jax.Array, slow: jax.Array) -> jax.Array:
    """Towards the return, and held back by the slow value."""
    return value.loss(sg(ret)) + value.loss(sg(slow))
