"""Fixtures of the agent's tests: the golden file, where it is there."""

import pathlib

import numpy as np
import pytest

GOLDEN = pathlib.Path(__file__).parents[3] / 'shared' / 'reference' / 'golden.npz'


@pytest.fixture(scope='session')
def golden() -> dict[str, np.ndarray]:
    """Arrays of the golden file by dotted name."""
    if not GOLDEN.exists():
        pytest.skip('needs ../shared/reference/golden.npz, next to the repository')
    with np.load(GOLDEN) as arrays:
        return dict(arrays)
