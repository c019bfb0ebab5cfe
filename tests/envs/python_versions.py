"""Suites that cannot be installed with every version of Python."""

import sys

import pytest

from embodied.envs.extras import installed

# A marker of pyproject.toml leaves dm_control out there; by hand it can be installed.
needs_dm_control = pytest.mark.skipif(
    sys.version_info >= (3, 13) and not installed('dm_control'),
    reason='dm_control needs labmaze, without a wheel for 3.13: use Python 3.12',
)
needs_memory_maze = pytest.mark.skipif(
    sys.version_info >= (3, 13) and not installed('memory_maze'),
    reason='memory-maze needs labmaze, without a wheel for 3.13: use Python 3.12',
)
