"""The world of the Minecraft task, as a specification for `minerl` 0.4.4."""

import importlib
from typing import Any

__all__ = ['make_world']

KEYS = {
    'forward': '17',
    'back': '31',
    'left': '30',
    'right': '32',
    'jump': '57',
    'attack': '-100',
}
PLACEABLE = ('none', 'dirt', 'crafting_table', 'furnace')
PICKAXES = ('wooden_pickaxe', 'stone_pickaxe', 'iron_pickaxe')
BREAK_SPEED = '<BreakSpeedMultiplier>{{multiplier}}</BreakSpeedMultiplier>'


def make_world(size: int, break_speed: float) -> Any:
    """An environment of the old gym interface, with a new random world per episode."""
    env_spec: Any = importlib.import_module('minerl.herobraine.env_spec')
    hero: Any = importlib.import_module('minerl.herobraine.hero')
    handlers = hero.handlers

    class BreakSpeed(hero.handler.Handler):
        """Blocks break that much faster than in the game."""

        multiplier = break_speed

        def to_string(self) -> str:
            return f'break_speed({self.multiplier})'

        def xml_template(self) -> str:
            return BREAK_SPEED

    class Diamond(env_spec.EnvSpec):
        def create_observables(self) -> list[Any]:
            return [
                handlers.POVObservation((size, size)),
                handlers.FlatInventoryObservation(hero.mc.ALL_ITEMS),
                handlers.ObservationFromLifeStats(),
            ]

        def create_actionables(self) -> list[Any]:
            none = {'_other': 'none', '_default': 'none'}
            keys = [handlers.KeybasedCommandAction(k, v) for k, v in KEYS.items()]
            crafted = ['none', 'planks', 'stick', 'crafting_table']
            return [
                *keys,
                handlers.CameraAction(),
                handlers.PlaceBlock(list(PLACEABLE), **none),
                handlers.EquipAction(['none', *PICKAXES], **none),
                handlers.CraftAction(crafted, **none),
                handlers.CraftNearbyAction(['none', *PICKAXES, 'furnace'], **none),
                handlers.SmeltItemNearby(['none', 'iron_ingot'], **none),
            ]

        def create_agent_start(self) -> list[Any]:
            return [BreakSpeed()]

        def create_server_world_generators(self) -> list[Any]:
            return [handlers.DefaultWorldGenerator(force_reset=True)]

        def create_server_quit_producers(self) -> list[Any]:
            return [handlers.ServerQuitWhenAnyAgentFinishes()]

        def create_server_initial_conditions(self) -> list[Any]:
            return [
                handlers.TimeInitialCondition(allow_passage_of_time=True),
                handlers.SpawningInitialCondition(allow_spawning='true'),
            ]

        def create_rewardables(self) -> list[Any]:
            return []

        def create_agent_handlers(self) -> list[Any]:
            return []

        def create_server_decorators(self) -> list[Any]:
            return []

        def create_monitors(self) -> list[Any]:
            return []

        def is_from_folder(self, folder: str) -> bool:
            return False

        def determine_success_from_rewards(self, rewards: list) -> bool:
            return False

        def get_docstring(self) -> str:
            return 'Twelve milestones from wood to a diamond.'

    return Diamond(name='DreamerDiamond-v0', max_episode_steps=None).make()
