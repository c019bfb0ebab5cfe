"""The DreamerV3 agent, as the run loops use it."""

from typing import Any

import elements

import embodied.jax
from embodied.core.base import Spaces

from .. import accelerator
from ..api.origin import Origin
from .model import Dreamer
from .own_model import model_class

__all__ = ['Agent']


class Agent(embodied.jax.Agent):
    """Spaces without `log/` keys and `reset`; config is the whole resolved config."""

    model: Dreamer

    def __init__(self, obs_space: Spaces, act_space: Spaces, config: elements.Config):
        embodied.jax.setup(config.jax.platform, config.jax.cache)
        self.origin = Origin(config, obs_space, act_space)
        devices = embodied.jax.Devices(config.jax.data, config.jax.fsdp)
        model = model_class(config)(obs_space, act_space, config, devices)
        device = embodied.jax.choose_device(config.jax.policy_devices)
        greedy = config.agent.eval_greedy
        super().__init__(model, config.seed, greedy, device, devices)

    @property
    def obs_space(self) -> Spaces:
        """What environments must observe, without `log/` keys."""
        return self.origin.obs_space

    @property
    def act_space(self) -> Spaces:
        """What environments must be able to do, without `reset`."""
        return self.origin.act_space

    @property
    def hardware(self) -> str:
        """What it trains on, in words."""
        return accelerator.describe(self.origin.config)

    def save(self) -> dict[str, Any]:
        """The saved agent can be rebuilt without its environment."""
        return {**super().save(), 'origin': self.origin.save()}
