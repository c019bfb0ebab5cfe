"""Fixtures of the tests of roles."""

import asked_roles
import pytest


@pytest.fixture
def door(tmp_path):
    """Where roles in other processes knock."""
    door = asked_roles.Door(tmp_path)
    yield door
    door.close()
