"""Agents with options around them, and the lives that every one of them has to lead."""

import agents
import numpy as np

import dreamerv3
from dreamerv3 import config as config_lib
from dreamerv3 import factories
from dreamerv3.agent.own_model import model_class
from dreamerv3.main import main
from embodied.core.checkpoint import Checkpoint

__all__ = ['export_and_load', 'make_model', 'resumes_exactly']

ROWS = 4
ACTIONS = ('discrete',)


def make_model(*flags, observations=('vector',), kind=None):
    """A model and a random batch. kind: None is the class that flags ask for."""
    config, spaces = agents.make_config(*flags), agents.spaces(observations, ACTIONS)
    model = (kind or model_class(config))(*spaces, config)
    return model, agents.make_batch(model, *spaces, rows=ROWS)


def resumes_exactly(*flags, observations=('vector',)):
    """Trains, saves, trains on, and again from the save.

    Returns the metrics of the last update, and those of a report.
    """
    spaces = agents.spaces(observations, ACTIONS)
    agent = dreamerv3.Agent(*spaces, agents.make_config(*flags))
    batch = lambda seed: agents.make_batch(agent.model, *spaces, ROWS, seed=seed)

    def update(carry, seeds):
        for seed in seeds:
            carry, _, metrics = agent.train(carry, batch(seed))
        return carry, metrics

    carry, _ = update(agent.init_train(ROWS), range(3))
    saved = agent.save()
    update(carry, range(3, 5))
    whole = agent.state
    agent.load(saved)
    assert any(np.any(agent.state[name] != x) for name, x in whole.items())
    _, metrics = update(carry, range(3, 6))
    agent.load(saved)
    update(carry, range(3, 5))
    for name, value in agent.state.items():
        np.testing.assert_array_equal(whole[name], value, err_msg=name)
    _, report = agent.report(agent.init_report(ROWS), batch(0))
    return metrics, report


def export_and_load(folder, *flags):
    """The bundle of a run that has learned nothing, loaded."""
    logdir = folder / 'run'
    logdir.mkdir()
    config = agents.make_config(*flags, f'--logdir={logdir}')
    (logdir / 'config.yaml').write_text(config_lib.dump(config))
    checkpoint = Checkpoint(logdir / 'ckpt')
    checkpoint.add('agent', factories.make_agent(config))
    checkpoint.save(1234)
    checkpoint.wait()
    assert main(['export', str(logdir), str(folder / 'bundle')]) == 0
    return dreamerv3.load(folder / 'bundle')
