"""Limits: refuses options that no network could be built from, and losses of an own
agent that cannot be trained on."""

from collections.abc import Mapping

import elements
import jax
import jax.numpy as jnp

from embodied.core.errors import ConfigError

from .actions import Actions

__all__ = ['check_limits', 'check_losses', 'check_policy_grad', 'check_scale']

MOST_CLASSES = 256  # of a latent variable: replay keeps their indices as bytes

AT_LEAST_ONE = (
    'imag_length',
    'horizon',
    'enc.layers',
    'dec.layers',
    'reward.layers',
    'cont.layers',
    'policy.layers',
    'value.layers',
)


def check_limits(config: elements.Config) -> None:
    """config: the whole resolved config."""
    for name in AT_LEAST_ONE:
        if config.agent[name] < 1:
            raise ConfigError(f'agent.{name}={config.agent[name]} must be at least 1.')
    classes = config.agent.dyn.classes
    if not 2 <= classes <= MOST_CLASSES:
        raise ConfigError(
            f'agent.dyn.classes={classes} must be between 2 and {MOST_CLASSES}.'
        )
    if config.replay_context < 0:
        raise ConfigError(
            f'replay_context={config.replay_context} must not be negative: 0 starts '
            'sequences from the zero state, 1 from the stored latent.'
        )


def check_policy_grad(backprop: bool, actions: Actions) -> None:
    """Gradients through the model need actions that have gradients."""
    if backprop and not actions.continuous:
        raise ConfigError(
            'agent.policy_grad=backprop trains continuous actions, and this task has '
            f'discrete ones only: {", ".join(actions.discrete)}. Set '
            'agent.policy_grad=reinforce.'
        )


def check_losses(
    losses: Mapping[str, jax.Array],
    metrics: Mapping[str, jax.Array],
    shape: tuple[int, ...],
) -> None:
    """shape: [B, T] of the losses; metrics are single numbers."""
    for name, loss in losses.items():
        if jnp.shape(loss) != shape:
            raise ConfigError(
                f'The loss {name!r} has the shape {jnp.shape(loss)}, and must have '
                f'[B, T] = {shape}: one number per step. Sum over what else an output '
                'has; jnp.broadcast_to(loss, batch["reward"].shape) makes one of a '
                'number for the whole batch.'
            )
    for name, metric in metrics.items():
        if jnp.shape(metric) != ():
            raise ConfigError(
                f'The metric {name!r} has the shape {jnp.shape(metric)}, and must be a '
                'single number. Take its mean.'
            )


def check_scale(name: str, scales: Mapping[str, float]) -> None:
    """name: of a loss, up to a slash."""
    if name not in scales:
        raise ConfigError(
            f'The loss {name!r} has no scale. There are scales of '
            f'{", ".join(sorted(scales))}. Add it to those that the property '
            f'`loss_scales` of the agent returns: {{**super().loss_scales, '
            f'{name!r}: self.config.own.scale}}.'
        )
