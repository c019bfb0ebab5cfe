"""Fixtures of the agent's tests: the golden file and a saved run."""

import pathlib

import agents
import numpy as np
import pytest

from dreamerv3 import config as config_lib
from dreamerv3 import factories
from embodied.core.checkpoint import Checkpoint

GOLDEN = pathlib.Path(__file__).parents[1] / 'data' / 'golden.npz'
EXAMPLES = pathlib.Path(__file__).parents[2] / 'examples'


@pytest.fixture(scope='session')
def golden() -> dict[str, np.ndarray]:
    """Arrays of the golden file by dotted name."""
    with np.load(GOLDEN) as arrays:
        return dict(arrays)


@pytest.fixture(scope='session')
def catch_run(tmp_path_factory) -> pathlib.Path:
    """The folder of a run of `toy_catch` with an agent that has learned nothing."""
    logdir = tmp_path_factory.mktemp('catch')
    flags = ['--task=toy_catch', '--env.toy.size=16', f'--logdir={logdir}']
    config = agents.make_config(*flags)
    (logdir / 'config.yaml').write_text(config_lib.dump(config))
    checkpoint = Checkpoint(logdir / 'ckpt')
    checkpoint.add('agent', factories.make_agent(config))
    checkpoint.save(1234)
    checkpoint.wait()
    return logdir


@pytest.fixture
def examples(monkeypatch) -> pathlib.Path:
    """The folder of the examples, whose modules can be imported."""
    monkeypatch.syspath_prepend(EXAMPLES)
    return EXAMPLES
