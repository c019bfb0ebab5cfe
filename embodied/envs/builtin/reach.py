"""Reach: push a point mass to a target. Continuous control, learned from vectors."""

from collections.abc import Mapping
from typing import Any

import elements
import numpy as np

from ...core.base import Env, Spaces
from ..spaces import act_spaces, make_obs, obs_spaces

__all__ = ['Reach']

LENGTH = 50  # steps per episode
ACCELERATION = 0.05  # change of velocity per step by a full push
FRICTION = 0.2  # share of the velocity lost per step
REGION = 0.8  # starts and targets lie in [-REGION, REGION], away from the walls


class Reach(Env):
    """A point mass in the square [-1, 1]^2, pushed by a force in [-1, 1]^2.

    Start and target are random. Every step is worth one minus the distance to the
    target. Episodes end after 50 steps by time limit, never terminally.

    action: [2] float32. position, velocity, target: [2] float32 each.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._random = np.random.default_rng(seed)
        self._position = np.zeros(2)
        self._velocity = np.zeros(2)
        self._target = np.zeros(2)
        self._count = 0
        self._over = True

    @property
    def obs_space(self) -> Spaces:
        inside = elements.Space(np.float32, (2,), -1, 1)
        return obs_spaces(
            {
                'position': inside,
                'velocity': elements.Space(np.float32, (2,)),
                'target': inside,
            }
        )

    @property
    def act_space(self) -> Spaces:
        return act_spaces({'action': elements.Space(np.float32, (2,), -1, 1)})

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        if action['reset'] or self._over:
            return self._begin()
        force = np.clip(np.asarray(action['action'], np.float64), -1, 1)
        velocity = (1 - FRICTION) * self._velocity + ACCELERATION * force
        moved = self._position + velocity
        self._position = np.clip(moved, -1, 1)
        # Walls stop the motion across them.
        self._velocity = np.where(moved == self._position, velocity, 0.0)
        self._count += 1
        self._over = self._count >= LENGTH
        distance = float(np.linalg.norm(self._position - self._target))
        return make_obs(self._vectors(), reward=1 - distance, is_last=self._over)

    def _begin(self) -> dict[str, Any]:
        self._position = self._random.uniform(-REGION, REGION, 2)
        self._velocity = np.zeros(2)
        self._target = self._random.uniform(-REGION, REGION, 2)
        self._count = 0
        self._over = False
        return make_obs(self._vectors(), is_first=True)

    def _vectors(self) -> dict[str, Any]:
        return {
            'position': self._position.astype(np.float32),
            'velocity': self._velocity.astype(np.float32),
            'target': self._target.astype(np.float32),
        }

    def save(self) -> Any:
        return {
            'random': self._random.bit_generator.state,
            'position': self._position.copy(),
            'velocity': self._velocity.copy(),
            'target': self._target.copy(),
            'count': self._count,
            'over': self._over,
        }

    def load(self, data: Any) -> None:
        self._random.bit_generator.state = data['random']
        self._position = data['position'].copy()
        self._velocity = data['velocity'].copy()
        self._target = data['target'].copy()
        self._count = data['count']
        self._over = data['over']
