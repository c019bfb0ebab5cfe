"""Minecraft: twelve milestones from wood to a diamond, by the package `minerl`.

The package (0.4.4) needs Java and old tools to build, so this adapter is tested against
a stand-in of its interface. `minecraft_world.py` says what the world is like.
"""

from collections.abc import Mapping
from typing import Any

import elements
import numpy as np

from ...core.base import Env, Spaces
from ..extras import check
from ..spaces import act_spaces, make_obs, obs_spaces

__all__ = ['ACTIONS', 'MILESTONES', 'Minecraft']

# In the order in which they can be reached; the first of each is worth 1.
MILESTONES = (
    'log',
    'planks',
    'stick',
    'crafting_table',
    'wooden_pickaxe',
    'cobblestone',
    'stone_pickaxe',
    'iron_ore',
    'furnace',
    'iron_ingot',
    'iron_pickaxe',
    'diamond',
)

TURN = 15.0  # degrees
ACTIONS: tuple[dict[str, Any], ...] = (
    {},
    {'attack': 1},
    {'camera': (-TURN, 0)},
    {'camera': (TURN, 0)},
    {'camera': (0, -TURN)},
    {'camera': (0, TURN)},
    {'forward': 1},
    {'back': 1},
    {'left': 1},
    {'right': 1},
    {'jump': 1, 'forward': 1},
    {'place': 'dirt'},
    {'place': 'crafting_table'},
    {'place': 'furnace'},
    {'craft': 'planks'},
    {'craft': 'stick'},
    {'craft': 'crafting_table'},
    {'nearbyCraft': 'wooden_pickaxe'},
    {'nearbyCraft': 'stone_pickaxe'},
    {'nearbyCraft': 'iron_pickaxe'},
    {'nearbyCraft': 'furnace'},
    {'nearbySmelt': 'iron_ingot'},
    {'equip': 'wooden_pickaxe'},
    {'equip': 'stone_pickaxe'},
    {'equip': 'iron_pickaxe'},
)
PITCH_LIMIT = 60.0  # degrees up and down that the camera may look
FULL_HEALTH = 20.0
HEALTH_REWARD = 0.01  # per point that is won or lost


class Minecraft(Env):
    """The task `diamond`: 1 for the first of each milestone, a little for health.

    A block takes many attacks, so an attack goes on for `sticky_attack` steps; jumps
    for `sticky_jump`. Episodes end terminally by death, otherwise after `length` steps.

    action: int32 in 25. image: [size, size, 3] uint8. inventory: float32, the most that
    was held of each milestone so far is in `inventory_max`. health, hunger: float32.
    """

    def __init__(
        self,
        task: str,
        seed: int | None = None,
        size: int = 64,
        break_speed: float = 100.0,
        length: int = 36_000,
        sticky_attack: int = 30,
        sticky_jump: int = 10,
    ) -> None:
        check('minerl', 'minecraft')
        from .minecraft_world import make_world

        self._env = make_world(size, break_speed)
        if seed is not None:
            self._env.seed(seed)
        self._size = size
        self._length = length
        self._sticky = {'attack': sticky_attack, 'jump': sticky_jump}
        self._held: dict[str, int] = {}  # steps for which an action still goes on
        self._most = np.zeros(len(MILESTONES), np.float32)
        self._health = FULL_HEALTH
        self._pitch = 0.0
        self._count = 0
        self._over = True

    @property
    def obs_space(self) -> Spaces:
        items = elements.Space(np.float32, (len(MILESTONES),), 0)
        bar = elements.Space(np.float32, (), 0, 1)
        return obs_spaces(
            {
                'image': elements.Space(np.uint8, (self._size, self._size, 3)),
                'inventory': items,
                'inventory_max': items,
                'health': bar,
                'hunger': bar,
                'log/milestones': elements.Space(np.float32, (), 0, len(MILESTONES)),
            }
        )

    @property
    def act_space(self) -> Spaces:
        return act_spaces({'action': elements.Space(np.int32, (), 0, len(ACTIONS))})

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        if action['reset'] or self._over:
            return self._begin()
        command = self._command(ACTIONS[int(action['action'])])
        raw, _, done, _ = self._env.step(command)
        self._count += 1
        before, health = self._most, self._health
        obs = self._observe(raw)
        reached = int(((self._most > 0) & (before == 0)).sum())
        dead = self._health <= 0
        self._over = bool(done) or dead or self._count >= self._length
        return make_obs(
            obs,
            reward=reached + HEALTH_REWARD * (self._health - health),
            is_last=self._over,
            is_terminal=dead,
        )

    def close(self) -> None:
        self._env.close()

    def _begin(self) -> dict[str, Any]:
        raw = self._env.reset()
        self._held = {}
        self._most = np.zeros_like(self._most)
        self._pitch = 0.0
        self._count = 0
        self._over = False
        return make_obs(self._observe(raw), is_first=True)

    def _command(self, choice: Mapping[str, Any]) -> dict[str, Any]:
        """The choice with what still goes on, as the simulator wants it."""
        command = {**self._env.action_space.noop(), **choice}
        for name, steps in self._sticky.items():
            if choice.get(name):
                self._held[name] = steps
            if self._held.get(name, 0) > 0 and 'camera' not in choice:
                command[name] = 1
            self._held[name] = max(0, self._held.get(name, 0) - 1)
        pitch, yaw = choice.get('camera', (0.0, 0.0))
        turned = float(np.clip(self._pitch + pitch, -PITCH_LIMIT, PITCH_LIMIT))
        command['camera'] = np.array([turned - self._pitch, yaw], np.float32)
        self._pitch = turned
        return command

    def _observe(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        held = np.array(
            [float(raw['inventory'].get(name, 0)) for name in MILESTONES], np.float32
        )
        self._most = np.maximum(self._most, held)
        stats = raw['life_stats']
        self._health = float(stats['life'])
        return {
            'image': np.asarray(raw['pov'], np.uint8),
            'inventory': held,
            'inventory_max': self._most,
            'health': np.float32(np.clip(self._health / FULL_HEALTH, 0, 1)),
            'hunger': np.float32(np.clip(float(stats['food']) / FULL_HEALTH, 0, 1)),
            'log/milestones': np.float32((self._most > 0).sum()),
        }
