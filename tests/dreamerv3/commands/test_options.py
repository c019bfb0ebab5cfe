"""Every option is read by something, and nothing reads an option that is not there.

Reads are recorded while the real parts are built and the agent's programs are traced
(not compiled), because a name such as `units` tells nothing about which group it was
read from. What the loops read goes through `Settings`, whose fields are looked up in
the source. Reads of options that do not exist are looked for in all of the source.
"""

import ast
import dataclasses
import pathlib

import elements
import jax
import numpy as np
import pytest

import dreamerv3
import embodied
from dreamerv3 import config as config_lib
from dreamerv3 import engines, factories, main
from embodied.run.parallel.engines.kubernetes import KubernetesOptions
from embodied.run.parallel.engines.slurm import SlurmOptions
from embodied.run.parallel.settings import ParallelSettings as Settings
from embodied.run.single.offline import OfflineSettings

PACKAGES = [pathlib.Path(p.__file__).parent for p in (dreamerv3, embodied)]
OPTIONS = config_lib.resolve([])[0].flat

# Modules of the command line, where the name `config` always means the whole one.
WHOLE = (
    'main.py',
    'loops.py',
    'run_folder.py',
    'commands/demo.py',
    'replica_options.py',
    'sinks.py',
    'offline_data.py',
)
METHODS = {'flat', 'get', 'items', 'partition', 'startswith', 'update'}  # not options


# Options that are not read, though others of the same name or group are: if the
# recorder missed these, it would miss real ones.
DECOYS = {'agent.dec.symlog', 'agent.cont.bins', 'jax.seed'}


class Recorder(elements.Config):
    """A config that writes down the full names of the options that are read."""

    def __init__(self, mapping, reads, prefix=''):
        super().__init__(mapping)
        self._reads = reads
        self._prefix = prefix

    def __getitem__(self, name):
        value = elements.Config(self._nested)[name]
        full = self._prefix + name
        if isinstance(value, dict):
            return Recorder(value, self._reads, f'{full}.')
        self._reads.add(full)
        return value

    def __contains__(self, name):
        return name in elements.Config(self._nested)

    def __iter__(self):  # without it, `**config` would not come through __getitem__
        return iter(self._nested)

    def keys(self):
        return self._nested.keys()

    def items(self):
        return [(name, self[name]) for name in self._nested]

    def get(self, name, default=None):
        if name not in self:
            return default
        return self[name]


def record(line, use):
    reads = set()
    options = config_lib.resolve(line.split())[0].flat
    use(Recorder({**options, **dict.fromkeys(DECOYS, 0)}, reads))
    return reads


def build_parts(config):
    factories.make_env(config, 0).close()
    factories.make_env(config, 0, mode='eval').close()
    for mode in ('train', 'eval'):
        replay = factories.make_replay(config, 'replay', mode)
        factories.make_stream(config, replay, mode)
    factories.make_logger(config).close()


def trace_agent(config):
    """Everything that the agent's programs read, with all kinds of spaces."""
    agent = factories.make_agent(config)
    env = factories.make_env(config, 0)
    model = agent.model
    key = jax.random.key(0)
    state = jax.eval_shape(lambda: model.pack(model.init(key)))
    weights = jax.eval_shape(model.weights, state)
    carry = jax.eval_shape(lambda: model.init_policy(2))
    params = model.policy_params(weights)
    spaces = {**env.obs_space, **env.act_space}
    shapes = lambda lead, names: {
        k: jax.ShapeDtypeStruct((*lead, *spaces[k].shape), spaces[k].dtype)
        for k in names
    }
    for greedy in (False, True):
        act = lambda *args, greedy=greedy: model.policy(*args, greedy)
        obs = shapes((2,), model.policy_keys)
        _, _, outs = jax.eval_shape(act, params, carry, obs, key)
    spaces |= {k: elements.Space(v.dtype, v.shape[1:]) for k, v in outs.items()}
    spaces['consec'] = elements.Space(np.int32)
    batch = shapes((2, 5), model.batch_keys)
    jax.eval_shape(model.train, state, weights, carry, batch, key)
    jax.eval_shape(model.report, state, weights, carry, batch, key)


def chains(path, roots):
    """Attribute chains on the given names, `config.a.b` as ('a', 'b'), longest only."""
    tree = ast.parse(path.read_text())
    inner = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or node in inner:
            continue
        parts, value = [], node
        while isinstance(value, ast.Attribute):
            inner.add(value)
            parts.append(value.attr)
            if _name(value.value) in roots:
                yield tuple(reversed(parts)), node.lineno
                break
            value = value.value


def _name(node):
    """The last part of a plain name or attribute: `config` also in `self._config`."""
    name = getattr(node, 'id', None) or getattr(node, 'attr', '')
    return name.lstrip('_')


def sources():
    for package in PACKAGES:
        yield from sorted(package.rglob('*.py'))


@pytest.fixture(scope='module')
def reads(tmp_path_factory):
    folder = tmp_path_factory.mktemp('options')
    base = f'--configs debug --logdir {folder} --jax.cache='
    image = '--env.dummy.size 16 --.*\\.mults 2 4 --batch_length 4 --report_length 4'
    beyond = '--agent.harmony True --agent.representation barlow'
    found = set()
    for options in ('', beyond):
        found |= record(f'{base} --task dummy_mixed {image} {options}', trace_agent)
    shares = '--replay.fracs.uniform 0.4 --replay.fracs.priority 0.3'
    shares += ' --replay.fracs.recency 0.3'
    for task in ('toy_catch', 'dummy_disc', 'gym_CartPole-v1'):
        found |= record(f'{base} --task {task} {shares}', build_parts)
    found |= record(f'{base} --engine ray', engines.make_engine)
    found |= {f'slurm.{name}' for name in SlurmOptions._fields}
    found |= {f'kubernetes.{name}' for name in KubernetesOptions._fields}
    for suite in embodied.envs.tasks():
        settings = embodied.envs.registry.settings_of(suite.suite)
        found |= {f'env.{suite.suite}.{name}' for name in settings}
    for module in WHOLE:
        path = PACKAGES[0] / module
        found |= {'.'.join(parts) for parts, _ in chains(path, {'config'})}
    return found | {name for name in OPTIONS if _reaches_the_loops(name)}


def _reaches_the_loops(name):
    """Options of `run` are arguments of the loops and become fields of Settings."""
    args = main.loop_args(config_lib.resolve([])[0])
    field = name.removeprefix('run.')
    kinds = Settings, OfflineSettings
    return field in args and field in {
        x.name for kind in kinds for x in dataclasses.fields(kind)
    }


def test_every_option_is_read(reads):
    assert sorted((OPTIONS.keys() | DECOYS) - reads) == sorted(DECOYS)


def test_every_setting_of_the_loops_is_used():
    used = set()
    for path in sources():
        if 'run' in path.parts or 'core' in path.parts:
            roots = {'settings'} | ({'self'} if path.name == 'settings.py' else set())
            used |= {parts[0] for parts, _ in chains(path, roots)}
    fields = {field.name for field in dataclasses.fields(Settings)}
    assert sorted(fields - used) == []


def test_no_option_is_read_that_is_missing():
    groups = [tuple(name.split('.')) for name in OPTIONS]
    parts_of_options = {
        parts[i:j]
        for parts in groups
        for i in range(len(parts))
        for j in range(i + 1, len(parts) + 1)
    }
    missing = []
    for path in sources():
        for parts, line in chains(path, {'config'}):
            while parts and parts[-1] in METHODS:
                parts = parts[:-1]
            if parts and parts not in parts_of_options:
                missing.append(f'{path.name}:{line}: config.{".".join(parts)}')
    assert missing == []
