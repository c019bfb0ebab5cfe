"""Memory Maze: find objects in a maze again and again, which takes remembering them."""

import importlib
import importlib.util
import sys
import types
from typing import Any

from ..adapters.from_dm import FromDM
from ..extras import check
from ..registry import adjust
from . import rendering

__all__ = ['make_memory_maze']

PACKAGE = 'memory_maze'
LARGEST_SEED = 2**32 - 1


def make_memory_maze(name: str, seed: int | None = None, size: int = 64) -> Any:
    """The maze of `name` (such as 9x9) as in the published benchmark.

    The image shows the color of the object to find as its frame. Episodes end by time
    limit, after 1000 to 4000 steps, and never terminally.

    action: int32 in 6. image: [size, size, 3] uint8.
    """
    check(PACKAGE, 'memorymaze')
    rendering.use_renderer()
    tasks = _load_tasks()
    task = getattr(tasks, f'memory_maze_{name}')
    random = None if seed is None else seed % LARGEST_SEED
    return adjust(FromDM(task(seed=random, image_only_obs=True)), size=size)


def _load_tasks() -> Any:
    """The module of the tasks without the package around it.

    When it is imported, the package insists on the library gym, for names that are not
    needed here.
    """
    if PACKAGE not in sys.modules:
        spec = importlib.util.find_spec(PACKAGE)
        assert spec is not None
        package = types.ModuleType(PACKAGE)
        package.__path__ = spec.submodule_search_locations or []
        package.__spec__ = spec  # Later imports find it installed.
        sys.modules[PACKAGE] = package
    return importlib.import_module(f'{PACKAGE}.tasks')
