"""Limits: refuses options of the agent that no network could be built from."""

import elements

from embodied.core.errors import ConfigError

from .actions import Actions

__all__ = ['check_limits', 'check_policy_grad']

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
