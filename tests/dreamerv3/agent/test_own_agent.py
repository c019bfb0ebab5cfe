"""The example of docs/change_the_algorithm.md: an own agent through its whole life."""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

import agents
import elements
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dreamerv3
from dreamerv3 import config as config_lib
from dreamerv3 import factories
from dreamerv3.agent.model import Dreamer, Nets
from dreamerv3.agent.networks.heads import ScalarHead
from dreamerv3.agent.networks.rssm import RSSM
from dreamerv3.agent.own_model import model_class
from dreamerv3.main import main
from embodied.core.checkpoint import Checkpoint
from embodied.core.errors import ConfigError, TrustError
from embodied.jax.devices import Devices
from embodied.jax.tree import Tree
from embodied.logging import read_records

ROOT = pathlib.Path(__file__).parents[3]
PAGE = ROOT / 'docs' / 'change_the_algorithm.md'
EXAMPLE = 'own_agent:FindReward'
MODULE = f'--agent.module={EXAMPLE}'
SPACES = agents.spaces(('vector',), ('discrete',))


def make_agent(*flags):
    return dreamerv3.Agent(*SPACES, agents.make_config(MODULE, *flags))


def make_batch(agent, seed=0):
    return agents.make_batch(agent.model, *SPACES, rows=4, seed=seed)


def update(agent, carry, seeds):
    for seed in seeds:
        carry, _, metrics = agent.train(carry, make_batch(agent, seed))
    return carry, metrics


# The page


def test_the_page_shows_the_example_in_about_thirty_lines():
    (code,) = re.findall(
        r'```python\n(import dataclasses.*?)```', PAGE.read_text(), re.S
    )
    example = (ROOT / 'examples' / 'own_agent.py').read_text().splitlines()
    lines = [line for line in code.splitlines() if line.strip()]
    assert len(lines) < 35
    for line in lines:
        assert line in example


def test_files_that_the_page_names_exist():
    for link in re.findall(r'\]\(([\w./]+\.(?:py|md|yaml))', PAGE.read_text()):
        assert (PAGE.parent / link).exists(), link


# Networks and their training


def test_other_parameters_begin_as_those_of_dreamer(examples):
    config = agents.make_config(MODULE)
    init = lambda kind: kind(*SPACES, config).init(jax.random.key(0))['params']
    ours, theirs = init(Dreamer), init(model_class(config))
    names = Tree(ours).names
    known = dict(zip(names, jax.tree.leaves(ours), strict=True))
    found = dict(zip(Tree(theirs).names, jax.tree.leaves(theirs), strict=True))
    added = {name for name in found if name not in known}
    assert added and all(name.startswith('own.found.') for name in added)
    for name, value in known.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_the_head_learns_goes_on_exactly_after_a_save_and_is_reported(examples):
    agent = make_agent()
    carry, _ = update(agent, agent.init_train(4), range(3))
    saved = agent.save()
    _, metrics = update(agent, carry, range(3, 6))
    assert metrics['loss/found'] > 0 and 0 <= metrics['found/right'] <= 1
    assert 'agent.own.scale' in saved['origin']['config']
    whole = agent.state
    agent.load(saved)
    update(agent, carry, range(3, 6))
    first = make_agent().state
    for name, value in agent.state.items():
        np.testing.assert_array_equal(whole[name], value, err_msg=name)
        if name.startswith('params.own.'):
            assert np.any(first[name] != value), name
    _, report = agent.report(agent.init_report(4), make_batch(agent))
    assert report['loss/found'] > 0 and 'found/right' in report


@pytest.mark.parametrize('scale', [0.0, 2.0])
def test_the_scale_of_the_options_weighs_the_loss(examples, scale):
    config = agents.make_config(MODULE, f'--agent.own.scale={scale}')
    model = model_class(config)(*SPACES, config)
    means = {'found': jnp.float32(3), 'rew': jnp.float32(5), 'rep': jnp.float32(10)}
    assert model.total(None, means) == 3 * scale + 5 + 0.1 * 10


class Rated(Dreamer):
    """Trains one number alone, at its own rate."""

    def make_nets(self, init):
        nets = super().make_nets(init)
        return eqx.tree_at(
            lambda x: x.own, nets, {'weight': jnp.zeros(()), 'still': jnp.ones(2)}
        )

    @property
    def loss_scales(self):
        return {**super().loss_scales, 'number': 1.0}

    def rates(self, name):
        rates = super().rates(name)
        if name == 'own.weight':
            return rates._replace(lr=0.25, agc=0.0)
        return rates._replace(lr=0.0) if name == 'own.still' else rates

    def world_losses(self, params, batch, seen, key):
        losses, metrics = super().world_losses(params, batch, seen, key)
        number = 3 * params.own['weight'] + params.own['still'].sum()
        losses['number'] = jnp.broadcast_to(number, batch['reward'].shape)
        return losses, metrics


def test_parameters_can_have_rates_of_their_own():
    model = Rated(*SPACES, agents.make_config())
    key = jax.random.key(0)
    state = model.pack(jax.jit(model.init)(key))
    batch = agents.make_batch(model, *SPACES)
    step = jax.jit(
        lambda state: (
            model.train(
                state, model.weights(state), model.init_train(2), batch, key
            ).state
        )
    )
    state = step(step(state))
    own = model.unpack(state)['params'].own
    # A constant gradient is normalized to 1, so each update moves it by its rate.
    np.testing.assert_allclose(own['weight'], -0.5, rtol=1e-5)
    np.testing.assert_array_equal(own['still'], [1, 1])


def test_single_numbers_stay_in_float32():
    config = agents.make_config('--jax.compute_dtype=bfloat16')
    model = Rated(*SPACES, config)
    make = lambda: model.weights(model.pack(model.init(jax.random.key(0))))
    own = jax.eval_shape(make).nets.own
    assert (own['weight'].dtype, own['still'].dtype) == (jnp.float32, jnp.bfloat16)


def test_hooks_decide_on_the_total_on_replay_and_on_reports():
    """As learned weights of losses, curious replay and a loss without decoder need."""
    seen_names = []

    def total(self, params, means):
        seen_names.extend(means)
        return means['rew'] * params.own['weight']

    def to_replay(self, seen, losses):
        assert seen.tokens.shape[:2] == seen.states.deter.shape[:2]
        entries = Dreamer.to_replay(self, seen, losses)
        return {**entries, 'priority': losses['rew'] + losses['dyn']}

    def report_entries(self, params, sequence, key):
        entries = Dreamer.report_entries(self, params, sequence, key)
        return {**entries, 'weight': params.own['weight']}

    hooks = {'total': total, 'to_replay': to_replay, 'report_entries': report_entries}
    model = type('Hooked', (Rated,), hooks)(*SPACES, agents.make_config())
    batch = agents.make_batch(model, *SPACES, rows=4)

    def both(batch, key):
        state = model.pack(model.init(key))
        args = state, model.weights(state), model.init_train(4), batch, key
        return model.train(*args), model.report(*args)

    trained, (_, report) = jax.eval_shape(both, batch, jax.random.key(0))
    assert trained.replay['priority'].shape == (4, 3)
    assert report['weight'].shape == ()
    assert {'number', 'dyn', 'policy', 'repval'} <= set(seen_names)


# Mistakes


def own_class(**methods):
    return type('Mine', (Dreamer,), methods)


def losses_with(name, make):
    def world_losses(self, params, batch, seen, key):
        losses, metrics = Dreamer.world_losses(self, params, batch, seen, key)
        return {**losses, name: make(seen)}, metrics

    return world_losses


def metrics_with(make):
    def world_losses(self, params, batch, seen, key):
        losses, metrics = Dreamer.world_losses(self, params, batch, seen, key)
        return losses, {**metrics, 'extra': make(seen)}

    return world_losses


@pytest.mark.parametrize(
    ('world_losses', 'words'),
    [
        (losses_with('more', lambda x: x.post.entropy()), "'more' has no scale"),
        (losses_with('rew', lambda x: x.states.feat), r'shape \(4, 3, \d+\).*\(4, 3\)'),
        (
            losses_with('rew', lambda x: x.post.entropy().mean()),
            r'shape \(\).*\(4, 3\)',
        ),
        (metrics_with(lambda x: x.post.entropy()), "metric 'extra'.*single number"),
    ],
)
def test_losses_and_metrics_that_cannot_be_used_are_explained(world_losses, words):
    model = own_class(world_losses=world_losses)(*SPACES, agents.make_config())
    batch = agents.make_batch(model, *SPACES, rows=4)
    weights = jax.eval_shape(
        lambda: model.weights(model.pack(model.init(jax.random.key(0))))
    )
    ranges = {'slow': weights.slow, 'ranges': model.init(jax.random.key(0))['ranges']}
    with pytest.raises(ConfigError, match=words):
        jax.eval_shape(
            model.loss,
            weights.nets,
            ranges,
            model.init_train(4),
            batch,
            jax.random.key(0),
        )


WRITTEN = """
import dreamerv3

class Nothing:
    pass

class Computed(dreamerv3.Dreamer):
    pass

Computed.options = {'scale': 1.0}
"""


@pytest.fixture
def written(tmp_path, monkeypatch):
    """The name of a module with the classes above."""
    name = f'written_{os.urandom(4).hex()}'
    (tmp_path / f'{name}.py').write_text(WRITTEN)
    monkeypatch.syspath_prepend(tmp_path)
    return name


@pytest.mark.parametrize(
    ('name', 'words'),
    [
        ('Nothing', 'Nothing.*must be a subclass of dreamerv3.Dreamer'),
        ('Computed', 'has the options agent.own.scale=1.0, and those that'),
    ],
)
def test_classes_that_are_no_own_agents_are_explained(written, name, words):
    config = agents.make_config(f'--agent.module={written}:{name}')
    with pytest.raises(ConfigError, match=words):
        dreamerv3.Agent(*SPACES, config)


def test_scales_without_those_of_dreamer_are_explained():
    model = own_class(loss_scales={'found': 1.0})
    with pytest.raises(ConfigError, match="'policy' has no scale"):
        model(*SPACES, agents.make_config())


class Longer(Nets):
    extra: ScalarHead


def test_networks_after_the_value_are_refused():
    def make_nets(self, init):
        nets = vars(Dreamer.make_nets(self, init))
        head = ScalarHead(init, self.feat_size, self.config.reward)
        return Longer(**nets, extra=head)

    model = own_class(make_nets=make_nets)(*SPACES, agents.make_config())
    with pytest.raises(ConfigError, match='must end with the value.*`own` of Nets'):
        jax.eval_shape(lambda: model.pack(model.init(jax.random.key(0))))


def test_an_own_loss_that_is_not_finite_is_named_before_what_it_spoils():
    more = losses_with('zebra', lambda x: x.post.entropy())
    scales = property(lambda self: {**Dreamer.loss_scales.fget(self), 'zebra': 1.0})
    kind = own_class(world_losses=more, loss_scales=scales)
    model, names = kind(*SPACES, agents.make_config()), []

    def train(batch, key):
        state = model.pack(model.init(key))
        carry = model.init_train(4)
        names.extend(model.train(state, model.weights(state), carry, batch, key).losses)

    batch = agents.make_batch(model, *SPACES, rows=4)
    jax.eval_shape(train, batch, jax.random.key(0))
    behavior = ['policy', 'value', 'repval', 'total', 'gradient']
    assert names == ['dyn', 'rep', 'rec/vector', 'rew', 'con', 'zebra', *behavior]


class OwnRSSM(RSSM):
    """Another recurrent model."""


def other_dynamics(self, init):
    nets = Dreamer.make_nets(self, init)
    size, dyn = self.actions.size, self.config.dyn
    return eqx.tree_at(lambda x: x.dyn, nets, OwnRSSM(init, nets.enc.size, size, dyn))


def more_heads(self, init):
    nets = Dreamer.make_nets(self, init)
    head = ScalarHead(init, self.feat_size, self.config.reward)
    return eqx.tree_at(lambda x: x.own, nets, {'head': head})


@pytest.mark.parametrize(
    ('make_nets', 'words'),
    [(other_dynamics, 'here dyn is a OwnRSSM'), (more_heads, 'they need a GPU')],
)
def test_kernels_are_refused_where_they_would_compute_another_model(make_nets, words):
    with pytest.raises(ConfigError, match=words):
        own_class(make_nets=make_nets)(
            *SPACES, agents.make_config('--jax.kernels=on'), Devices()
        )


# Runs and bundles

RUN = ('--configs', 'tiny', 'debug', '--task', 'toy_reach', '--run.report_every', '-1')
ONWARD = ('--run.log_every', '-1', '--run.debug', 'False', '--logger.outputs', 'jsonl')


@pytest.fixture(scope='module')
def run(tmp_path_factory):
    """The folder of a run with an own agent that has learned nothing."""
    logdir = tmp_path_factory.mktemp('own')
    checkpoint = Checkpoint(logdir / 'ckpt')
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / 'examples')
        config = agents.make_config(MODULE, '--task=toy_reach', f'--logdir={logdir}')
        (logdir / 'config.yaml').write_text(config_lib.dump(config))
        checkpoint.add('agent', factories.make_agent(config))
        checkpoint.save(1234)
        checkpoint.wait()
    return logdir


def dreamer(*argv, logdir=None, cwd=ROOT / 'examples'):
    flags = ['--logdir', str(logdir)] if logdir else []
    return subprocess.run(
        [sys.executable, '-m', 'dreamerv3', *map(str, argv), *flags],
        cwd=cwd,
        env={**os.environ, 'PYTHONPATH': str(ROOT)},
        capture_output=True,
        text=True,
    )


@pytest.mark.long
def test_a_run_trains_goes_on_and_reports(tmp_path):
    logdir = tmp_path / 'run'
    for steps in ('60', '100'):
        flags = [*RUN, *ONWARD, '--run.steps', steps, MODULE]
        done = dreamer('train', *flags, logdir=logdir)
        assert done.returncode == 0, done.stderr
    records = read_records(logdir / 'metrics.jsonl')
    assert any(x.get('train/loss/found', 0) > 0 for x in records)
    assert any('report/found/right' in x for x in records)
    events = [x['event'] for x in read_records(logdir / 'events.jsonl')]
    assert events.count('resume') == 1
    config = elements.Config.load(logdir / 'config.yaml')
    assert config.agent.own == {'scale': 1.0, 'layers': 1, 'units': 8}
    source = ROOT / 'examples' / 'own_agent.py'
    made_with = read_records(logdir / 'provenance.jsonl')[-1]
    assert made_with['agent_file'] == str(source)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    assert made_with['agent_sha256'] == digest


def test_a_run_is_not_continued_without_its_module(run, capsys):
    assert main(['train', *RUN, '--logdir', str(run)]) == 2
    assert f"agent.module: {EXAMPLE} -> ''" in capsys.readouterr().err


@pytest.fixture(scope='module')
def bundle(run, tmp_path_factory):
    """The agent of the run as a bundle, for which its module is not needed."""
    out = tmp_path_factory.mktemp('out') / 'bundle'
    assert main(['export', str(run), str(out)]) == 0
    return out


def test_a_bundle_of_an_own_agent_needs_trust(bundle, examples, tmp_path):
    assert f'`{EXAMPLE}`' in (bundle / 'README.md').read_text()
    with pytest.raises(TrustError, match=f'{EXAMPLE}.*trust'):
        dreamerv3.load(bundle)
    for command in ('eval', 'play', 'import'):
        assert main([command, str(bundle)]) == 2
    for agent in (
        dreamerv3.load(bundle, trust=True),
        dreamerv3.load(bundle, [MODULE]),
    ):
        assert type(agent._agent.model).__name__ == 'FindReward'
        obs = {k: np.zeros(x.shape, x.dtype) for k, x in agent.obs_space.items()}
        action, _ = agent.act(obs)
        assert action['action'].shape == (2,)


def test_a_run_of_ones_own_needs_no_flag(run, examples):
    assert type(dreamerv3.load(run)._agent.model).__name__ == 'FindReward'


def test_a_bundle_whose_module_is_not_here_is_explained(bundle, tmp_path):
    done = dreamer('eval', bundle, '--trust', cwd=tmp_path)
    assert done.returncode == 2
    assert "There is no module 'own_agent'" in done.stderr


@pytest.mark.long
def test_a_trusted_bundle_is_trained_further(bundle, tmp_path):
    logdir = tmp_path / 'more'
    flags = ['--run.steps', '60', *ONWARD]
    done = dreamer('import', bundle, '--trust', *flags, logdir=logdir)
    assert done.returncode == 0, done.stderr
    records = read_records(logdir / 'metrics.jsonl')
    assert any('train/loss/found' in x for x in records)


@pytest.mark.long
def test_many_processes_train_an_own_agent(tmp_path):
    logdir = tmp_path / 'run'
    done = dreamer(
        *('parallel', *RUN, *ONWARD, '--run.steps', '200', MODULE), logdir=logdir
    )
    assert done.returncode == 0, done.stderr
    records = read_records(logdir / 'metrics.jsonl')
    assert any(x.get('train/loss/found', 0) > 0 for x in records)
    assert elements.Config.load(logdir / 'config.yaml').agent.own.units == 8


@pytest.mark.long
def test_the_example_runs_as_it_is(tmp_path):
    shutil.copy(ROOT / 'examples' / 'own_agent.py', tmp_path)
    command = [sys.executable, 'own_agent.py', str(tmp_path / 'run'), '200', 'debug']
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.search(r'loss \d.* right in \d+% of steps', done.stdout)
