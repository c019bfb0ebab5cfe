"""`dreamer export --format stablehlo`: policies that play without this package."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import zipfile

import agents
import jax
import jax.export
import numpy as np
import pytest

import dreamerv3
from dreamerv3 import factories
from dreamerv3.agent.dreamer import Agent
from dreamerv3.api import bundle
from dreamerv3.main import main
from dreamerv3.portable.onnx_graph import compare_onnx
from embodied import envs
from embodied.core.checkpoint import Checkpoint
from embodied.core.errors import ConfigError

# What the players may use, and what these need themselves.
COMMON = ('numpy', 'numpy.libs')
GYMNASIUM = ('gymnasium', 'cloudpickle', 'typing_extensions.py', 'farama_notifications')
JAX = ('jax', 'jaxlib', 'ml_dtypes', 'opt_einsum', 'scipy', 'scipy.libs', 'flatbuffers')
ONNX = ('onnxruntime', 'onnxruntime.libs', 'flatbuffers', 'packaging', 'google')

PLAYING = """
import json, sys
import gymnasium, numpy as np
sys.path.insert(0, sys.argv[1])
from player import Policy
policy = Policy(sys.argv[1] + '/policy.zip')
env = gymnasium.make('Pendulum-v1', max_episode_steps=30)
rewards, state = [], None
obs, _ = env.reset(seed=3)
for step in range(30):
    action, state = policy.act({'vector': obs, 'log/x': 1}, state, step % 2 == 0)
    obs, reward, *_ = env.step(action['action'])
    rewards.append(float(np.float32(reward)))
ours = [x for x in sys.modules if x.split('.')[0] in FORBIDDEN]
print(json.dumps({'rewards': rewards, 'ours': ours}))
"""

ENVIRONMENT = """\
import gymnasium
import numpy as np
from gymnasium import spaces

received = []


class Arm(gymnasium.Env):
    observation_space = spaces.Dict({
        'camera': spaces.Box(0, 255, (24, 40, 3), np.uint8),
        'mode': spaces.Discrete(3, start=5),
        'joints': spaces.Box(-np.inf, np.inf, (2,), np.float64),
    })
    action_space = spaces.Dict({
        'force': spaces.Box(np.array([-1, 0]), np.array([3, 10]), dtype=np.float64),
        'gear': spaces.Discrete(3, start=-1),
        'grip': spaces.Box(-2, 2, (), np.float32),
        'lamps': spaces.MultiBinary(2),
    })

    def reset(self, seed=None, options=None):
        return self.look(), {}

    def step(self, action):
        received.append(action)
        return self.look(), 0.0, False, False, {}

    def look(self):
        return {
            'camera': np.zeros((24, 40, 3), np.uint8),
            'mode': 6,
            'joints': np.zeros(2),
        }
"""


def save_run(folder, config, agent):
    checkpoint = Checkpoint(folder / 'ckpt')
    checkpoint.add('agent', agent)
    checkpoint.save(77)
    checkpoint.wait()
    return folder


def run_of_task(folder, *flags):
    config = agents.make_config(f'--logdir={folder}', *flags)
    return save_run(folder, config, factories.make_agent(config))


def export(run, out, *flags):
    return main(['export', str(run), str(out), '--format', *flags])


def player_of(folder):
    """The module beside an exported policy."""
    spec = importlib.util.spec_from_file_location('player', folder / 'player.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def policy_of(folder, **kwargs):
    return player_of(folder).Policy(folder / 'policy.zip', **kwargs)


def playing(*forbidden):
    names = ('embodied', 'dreamerv3', *forbidden)
    return PLAYING.replace('FORBIDDEN', repr(names))


def execute(folder, packages, *argv):
    """Runs Python with these packages alone."""
    site = folder / 'site'
    site.mkdir()
    where = pathlib.Path(np.__file__).parents[1]
    for name in packages:
        if (where / name).exists():  # Some have no libraries of their own.
            (site / name).symlink_to(where / name)
    environ = {**os.environ, 'PYTHONPATH': str(site)}
    command = [sys.executable, '-S', *argv]
    done = subprocess.run(command, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope='module', params=['float32', 'bfloat16'])
def every_kind(request, tmp_path_factory):
    """A run with observations and actions of every kind, and its exported policy."""
    folder = tmp_path_factory.mktemp('every')
    task = f'--task=pickle:{folder}/make_env.pkl'  # as of dreamerv3.train(make_env)
    dtype = f'--jax.compute_dtype={request.param}'
    config = agents.make_config('--seed=5', dtype, task)
    agent = Agent(*agents.spaces(), config)
    run = save_run(folder / 'run', config, agent)
    assert export(run, folder / 'out', 'stablehlo', '--no-env') == 0
    return run, folder / 'out'


@pytest.fixture(scope='module')
def pendulum(tmp_path_factory):
    """A run of an environment with continuous actions from -2 to 2."""
    folder = tmp_path_factory.mktemp('pendulum')
    return run_of_task(folder, '--task=gym:Pendulum-v1', '--env.gym.length=30')


def test_actions_are_those_of_the_loaded_agent_to_the_last_bit(every_kind):
    run, out = every_kind
    agent, policy = dreamerv3.load(run), policy_of(out)
    for greedy in (True, False):
        ours = theirs = None
        for step in range(20):
            obs = agents.make_obs(agents.spaces()[0], (3,), step)
            obs['log/battery'] = np.float32(step)
            obs['is_first'] = np.array([step == 0, step % 7 == 0, step in (0, 4, 5)])
            expected, ours = agent.act(obs, ours, greedy)
            given, theirs = policy.step(obs, theirs, greedy)
            assert given.keys() == expected.keys()
            for key, value in expected.items():
                assert given[key].dtype == value.dtype
                np.testing.assert_array_equal(
                    given[key], value, err_msg=f'{key} {step}'
                )
            for value, leaf in zip(theirs, jax.tree.leaves(ours), strict=True):
                np.testing.assert_array_equal(value, leaf)
    obs = agents.make_obs(agents.spaces()[0], ())
    del obs['is_first']
    ours = theirs = None
    for _ in range(2):  # single observations
        expected, ours = agent.act(obs, ours)
        given, theirs = policy.step(obs, theirs)
        for key, value in expected.items():
            assert np.shape(given[key]) == np.shape(value)
            np.testing.assert_array_equal(given[key], value)


def test_a_policy_has_its_seed_and_runs_on_processors_and_gpus(every_kind):
    _, out = every_kind
    obs = agents.make_obs(agents.spaces()[0], ())
    policy = policy_of(out)
    first, _ = policy.step(obs)
    policy.program.seed, policy.program.calls = np.uint32(6), 0
    other, _ = policy.step(obs)
    assert any((other[key] != first[key]).any() for key in first)
    with zipfile.ZipFile(out / 'policy.zip') as file:
        for name in ('greedy', 'sampled'):
            code = file.read(f'{name}.stablehlo')
            program = jax.export.deserialize(bytearray(code))
            assert program.platforms == ('cpu', 'cuda')


def test_wrong_observations_are_explained_by_the_player(every_kind):
    policy = policy_of(every_kind[1])
    obs = agents.make_obs(agents.spaces()[0], ())
    with pytest.raises(KeyError, match="lacks 'vector'"):
        policy.act({k: v for k, v in obs.items() if k != 'vector'})
    with pytest.raises(ValueError, match=r"'image' has shape .* must have \(16, 16, 3"):
        policy.act({**obs, 'image': np.zeros((8, 8, 3), np.uint8)})
    with pytest.raises(TypeError, match="'image' is float64, but must be uint8"):
        policy.act({**obs, 'image': np.zeros((16, 16, 3))})
    with pytest.raises(ValueError, match='Some keys have an axis'):
        policy.act({**obs, 'vector': np.zeros((1, 7), np.float32)})


def rewards_here(run, greedy_steps):
    """Rewards of the same loop with our own wrappers around the environment."""
    agent = dreamerv3.load(run)
    env = envs.make('gym:Pendulum-v1', seed=3)
    zeros = {'action': np.zeros(1, np.float32)}
    obs, state, rewards = env.step({**zeros, 'reset': True}), None, []
    for step in range(30):
        action, state = agent.act(obs, state, greedy_steps(step))
        obs = env.step({**action, 'reset': False})
        rewards.append(float(obs['reward']))
    env.close()
    return rewards


def test_the_player_plays_gymnasium_with_jax_and_numpy_alone(pendulum, tmp_path):
    out = tmp_path / 'out'
    assert export(pendulum, out, 'stablehlo') == 0
    packages = (*COMMON, *GYMNASIUM, *JAX)
    script = playing('equinox', 'elements')
    result = json.loads(execute(tmp_path, packages, '-c', script, str(out)))
    assert result['ours'] == []
    assert result['rewards'] == rewards_here(pendulum, lambda step: step % 2 == 0)


@pytest.mark.long  # the same again, by its own main
def test_the_player_is_a_script_for_environments_of_gymnasium(pendulum, tmp_path):
    out = tmp_path / 'out'
    source = tmp_path / 'bundle'
    assert main(['export', str(pendulum), str(source)]) == 0
    assert bundle.is_bundle(source)
    assert export(source, out, 'stablehlo') == 0  # A bundle has all that is needed.
    packages = (*COMMON, *GYMNASIUM, *JAX)
    done = execute(tmp_path, packages, str(out / 'player.py'), 'Pendulum-v1', '2')
    lines = done.splitlines()
    assert len(lines) == 2 and all(x.startswith('score -') for x in lines)


@pytest.fixture
def arm(tmp_path, monkeypatch):
    """A run of an environment with units, images to resize, and its module."""
    name = f'arm_{os.urandom(4).hex()}'
    (tmp_path / f'{name}.py').write_text(ENVIRONMENT)
    monkeypatch.syspath_prepend(tmp_path)
    flags = (f'--task={name}:Arm', '--env.own.size=16', '--env.own.repeat=2')
    run = run_of_task(tmp_path / 'run', *flags)
    return run, importlib.import_module(name)


def test_actions_are_in_the_units_of_the_environment(arm, tmp_path):
    run, module = arm
    out = tmp_path / 'out'
    assert export(run, out, 'stablehlo') == 0
    policy, agent = policy_of(out), dreamerv3.load(run)
    env = factories.make_env(agent.config, 0)
    reset = {k: np.zeros(x.shape, x.dtype) for k, x in agent.act_space.items()}
    obs = env.step({**reset, 'reset': True})
    for scale in (1, 5):  # also beyond the bounds, where they are clipped
        raw, _ = policy.step(obs)
        raw = {k: v * scale if k in ('force', 'grip') else v for k, v in raw.items()}
        raw = {k: np.asarray(v, agent.act_space[k].dtype) for k, v in raw.items()}
        env.step({**raw, 'reset': False})
        for key, value in module.received[-1].items():
            given = policy.outside(key, raw[key])
            np.testing.assert_array_equal(given, value, err_msg=key)
    edge = policy.outside('force', np.array([-1, 1], np.float32))
    np.testing.assert_array_equal(edge, [-1, 10])
    assert edge.dtype == np.float64
    assert policy.outside('gear', np.int32(0)) == -1
    acted, _ = policy.act(obs)
    assert acted.keys() == {'force', 'gear', 'grip', 'lamps'}


def test_metadata_and_readme_say_what_the_loop_has_to_do(arm, tmp_path):
    run, _ = arm
    out = tmp_path / 'out'
    assert export(run, out, 'stablehlo') == 0
    about = policy_of(out).about
    camera = about['observations']['camera']
    assert (camera['dtype'], camera['shape']) == ('uint8', [16, 16, 3])
    given = camera['environment']
    assert given['shape'] == [24, 40, 3]
    (change,) = given['changes']
    assert 'resize((16, 16), Image.Resampling.BILINEAR)' in change
    assert about['observations']['joints']['environment']['changes'] == [
        'cast to float32'
    ]
    assert about['observations']['mode']['environment']['changes'] == [
        '5 is subtracted, so that it counts from 0'
    ]
    force = about['actions']['force']['environment']
    assert (force['low'], force['high'], force['dtype']) == (
        [-1, 0],
        [3, 10],
        'float64',
    )
    assert about['actions']['gear']['environment']['start'] == -1
    settings = {x['name']: x['value'] for x in about['environment']['settings']}
    assert settings['env.own.repeat'] == 2
    assert about['step'] == 77 and about['versions']['jax'] == jax.__version__
    readme = (out / 'README.md').read_text()
    assert '| `force` | float64 | [2] | [-1, 0] to [3, 10] |' in readme
    assert '| `gear` | int32 | [] | 3 values, from -1 on |' in readme
    assert '`camera`: the environment gives uint8 [24, 40, 3], resized' in readme
    assert '| `env.own.repeat` | 2 | steps per action |' in readme
    with zipfile.ZipFile(out / 'policy.zip') as file:
        names = set(file.namelist())
        assert str(run) not in file.read('config.yaml').decode()
    assert names == {
        'config.yaml',
        'greedy.stablehlo',
        'policy.json',
        'sampled.stablehlo',
        'weights.bin',
    }


def test_environments_that_cannot_be_made_are_explained(
    every_kind, pendulum, tmp_path, capsys
):
    out = tmp_path / 'out'
    flags = ('--task', 'gym:Nowhere-v0')
    assert export(pendulum, out, 'stablehlo', *flags) == 2
    error = capsys.readouterr().err
    assert 'Nowhere-v0' in error and '--no-env' in error and '--task' in error
    assert export(pendulum, out, 'stablehlo', '--task', 'toy_reach') == 2
    assert 'with the spaces of its training' in capsys.readouterr().err
    assert not out.exists()
    readme = (every_kind[1] / 'README.md').read_text()
    assert 'units are **not known**' in readme
    assert 'Policy for `own`' in readme
    with zipfile.ZipFile(every_kind[1] / 'policy.zip') as file:
        for name in ('policy.json', 'config.yaml'):
            assert 'make_env.pkl' not in file.read(name).decode()


def test_dtype_is_chosen_by_the_option_of_the_run(pendulum, tmp_path):
    flags = ('--jax.compute_dtype', 'bfloat16')
    assert export(pendulum, tmp_path / 'out', 'stablehlo', '--no-env', *flags) == 0
    policy, agent = policy_of(tmp_path / 'out'), dreamerv3.load(pendulum, flags)
    assert policy.about['compute_dtype'] == 'bfloat16'
    obs = {'vector': np.ones(3, np.float32)}
    assert policy.step(obs)[0] == agent.act(obs)[0]


@pytest.mark.parametrize(
    ('flags', 'words'),
    [
        (['stablehlo', '--batch', '2'], 'any number of rows'),
        (['onnx', '--batch', '0'], 'at least 1'),
        (['onnx', '--push', 'a/b'], 'are for bundles'),
        (['onnx', '--jax.compute_dtype', 'bfloat16'], 'computes in float32'),
        (['bundle', '--no-env'], 'is for policies'),
        (['bundle', '--batch', '2'], 'is for --format onnx'),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    pendulum, tmp_path, capsys, flags, words
):
    assert export(pendulum, tmp_path / 'out', *flags) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / 'out').exists()


# ONNX


@pytest.fixture(scope='module')
def as_onnx(tmp_path_factory):
    """A run with every kind of space, and its policy as ONNX for two rows."""
    folder = tmp_path_factory.mktemp('onnx')
    config = agents.make_config()
    agent = Agent(*agents.spaces(), config)
    run = save_run(folder / 'run', config, agent)
    assert export(run, folder / 'out', 'onnx', '--no-env', '--batch', '2') == 0
    return run, folder / 'out'


def test_onnx_acts_as_the_agent_with_the_same_noise_and_other_agents_do_not(as_onnx):
    run, out = as_onnx
    assert compare_onnx(dreamerv3.load(run), out / 'policy.zip', 2) < 1e-5
    agent = dreamerv3.load(run, ['--agent.dyn.unimix', '0.9'])
    with pytest.raises(ConfigError, match='does not act as the agent does'):
        compare_onnx(agent, out / 'policy.zip', 2)


def test_onnx_remembers_forgets_and_samples(as_onnx):
    policy = policy_of(as_onnx[1])
    with pytest.raises(ValueError, match='1 observations; this was exported for 2'):
        policy.act(agents.make_obs(agents.spaces()[0], (1,)))
    obs = agents.make_obs(agents.spaces()[0], (2,))
    obs['is_first'] = np.zeros(2, bool)
    action, state = policy.act(obs)
    later, next_state = policy.act(obs, state)
    again, reset = policy.act({**obs, 'is_first': np.array([True, False])}, state)
    assert (next_state[0] != state[0]).any(-1).all()
    np.testing.assert_allclose(reset[0][0], state[0][0], atol=1e-6)
    np.testing.assert_allclose(reset[0][1], next_state[0][1], atol=1e-6)
    assert any((later[k] != again[k]).any() for k in action)
    forces = np.stack([policy.step(obs)[0]['force'] for _ in range(200)])
    assert forces.std(0).min() > 0.1


def test_the_player_plays_onnx_without_jax(tmp_path, pendulum):
    out = tmp_path / 'out'
    assert export(pendulum, out, 'onnx') == 0
    script = playing('jax', 'equinox', 'elements')
    packages = (*COMMON, *GYMNASIUM, *ONNX)
    result = json.loads(execute(tmp_path, packages, '-c', script, str(out)))
    assert result['ours'] == []
    assert len(result['rewards']) == 30 and np.isfinite(result['rewards']).all()
