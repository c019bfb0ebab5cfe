"""Bundles and runs of others run no code, unless --trust says so."""

import json
import os
import pickle
import shutil
import zlib

import elements
import pytest

import dreamerv3
from dreamerv3 import config as config_lib
from dreamerv3 import factories
from dreamerv3.api import bundle as bundle_lib
from dreamerv3.api import foreign
from dreamerv3.api.origin import Origin
from dreamerv3.main import main
from embodied import envs
from embodied.core.checkpoint import Checkpoint, load_part, load_part_and_step
from embodied.core.errors import TrustError
from embodied.core.files import seal
from embodied.envs.adapters import own

MODULE = """\
import pathlib
from embodied import envs

pathlib.Path({marker!r}).touch()


def make(seed=None):
    return envs.Catch(16, seed=seed)
"""


class Touch:
    """Makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mknod, (self.path,)


@pytest.fixture
def marker(tmp_path):
    """A file that exists once foreign code has run."""
    return tmp_path / 'marker'


@pytest.fixture
def make_bundle(catch_run, tmp_path):
    """A bundle of the run, with other options than those of the run."""

    def make(**options):
        data = load_part(catch_run, 'agent')
        origin = Origin.load(data['origin'])
        out = tmp_path / 'bundle'
        bundle_lib.write(
            out, origin, data['state'], load_part_and_step(catch_run, 'agent')[1]
        )
        config = elements.Config.load(out / 'config.yaml')
        flat = {**config.flat, **{k.replace('__', '.'): v for k, v in options.items()}}
        (out / 'config.yaml').write_text(config_lib.dump(elements.Config(flat)))
        return out

    return make


@pytest.fixture
def module(tmp_path, marker, monkeypatch):
    """A task whose module lies in the working directory."""
    name = f'foreign_{os.urandom(4).hex()}'
    (tmp_path / f'{name}.py').write_text(MODULE.format(marker=str(marker)))
    monkeypatch.chdir(tmp_path)
    return f'{name}:make'


def code_tasks(tmp_path, marker, module):
    pickled = tmp_path / 'make_env.pkl'
    pickled.write_bytes(pickle.dumps(Touch(marker)))
    name = module.partition(':')[0]
    return {
        'pickle': f'pickle:{pickled}',
        'factory': module,
        'gymnasium module': f'gym:{name}:Env-v0',
        'gymnasium package': f'gym_{name}/Env-v0',
    }


PLAY = ['--episodes=1', '--envs=1', '--run.debug=True', '--env.own.size=16']
KINDS = ('pickle', 'factory', 'gymnasium module', 'gymnasium package')


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('command', ['eval', 'play', 'import'])
def test_the_code_that_a_bundle_names_is_not_run(
    make_bundle, tmp_path, marker, module, capsys, command, kind
):
    task = code_tasks(tmp_path, marker, module)[kind]
    folder = make_bundle(task=task)
    flags = ['--run.debug', 'True']
    flags += ['--logdir', str(tmp_path / 'run')] if command == 'import' else []
    assert main([command, str(folder), *flags]) == 2
    error = capsys.readouterr().err
    assert not marker.exists()
    assert repr(task) in error and '--trust' in error and '--task' in error
    assert not (tmp_path / 'run').exists()


def test_a_trusted_bundle_plays_the_environment_that_it_names(
    make_bundle, module, marker, tmp_path
):
    flags = [*PLAY, '--out', str(tmp_path / 'out')]
    assert main(['eval', '--trust', str(make_bundle(task=module)), *flags]) == 0
    assert marker.exists()


def test_the_task_of_the_command_line_is_the_users_own(
    make_bundle, module, marker, tmp_path
):
    folder = make_bundle(task='pickle:/nowhere')
    flags = [*PLAY, '--out', str(tmp_path / 'out')]
    assert main(['eval', str(folder), '--task', module, *flags]) == 0
    assert marker.exists()


def test_weights_of_a_bundle_load_whatever_its_task_is(make_bundle, module, marker):
    agent = dreamerv3.load(make_bundle(task=module))
    assert agent.config.task == module
    assert not marker.exists()


def test_a_bundle_chooses_no_places_hosts_or_services(make_bundle, tmp_path):
    places = {
        'jax__cache': str(tmp_path / 'cache'),  # of compiled programs, which are code
        'ray__address': 'elsewhere:6379',
        'run__from_checkpoint': str(tmp_path),
        'run__actor_addr': 'elsewhere:1',
        'run__encrypt': False,
        'clock_addr': 'elsewhere:1',
        'logger__outputs': ['wandb'],
        'logger__wandb__entity': 'stranger',
        'engine': 'ray',
        'trust': True,
        'logdir': str(tmp_path / 'x'),
        'seed': 7,
    }
    came = bundle_lib.read(make_bundle(**places))[0].config
    config = foreign.take([], came, False, False, tmp_path).config
    defaults = config_lib.resolve([])[0]
    for name in places.keys() - {'seed'}:
        name = name.replace('__', '.')
        assert config.flat[name] == defaults.flat[name], name
    assert config.seed == 7


def copied(run, tmp_path):
    """A run as one gets it from elsewhere."""
    return shutil.copytree(run, tmp_path / 'copy')


def test_runs_of_others_load_and_play(catch_run, tmp_path):
    run = copied(catch_run, tmp_path)
    flags = [*PLAY, '--out', str(tmp_path / 'out')]
    assert main(['eval', str(run), *flags]) == 0
    assert main(['export', str(run), str(tmp_path / 'bundle')]) == 0


def replace_part(part, data):
    """With a manifest that fits, as the author of a checkpoint can write it."""
    part.write_bytes(data)
    path = part.with_name('manifest.json')
    manifest = json.loads(path.read_text())
    del manifest['checksum']
    manifest['parts'][part.stem] = len(data)
    manifest['crc32'][part.stem] = zlib.crc32(data)
    path.write_text(json.dumps(seal(manifest)))


@pytest.mark.parametrize('command', ['eval', 'play', 'export', 'eval_only'])
def test_checkpoints_of_others_run_no_code(
    catch_run, tmp_path, marker, capsys, command
):
    run = copied(catch_run, tmp_path)
    (part,) = run.glob('ckpt/*/agent.pkl')
    replace_part(part, pickle.dumps(Touch(marker)))
    argv = {
        'export': ['export', str(run), str(tmp_path / 'out')],
        'eval_only': [
            *['eval_only', '--configs', 'debug', '--logdir', str(tmp_path / 'new')],
            *['--run.from_checkpoint', str(run), '--random_agent', 'True'],
        ],
    }.get(command, [command, str(run)])
    assert main(argv) == 2
    error = capsys.readouterr().err
    assert not marker.exists()
    assert 'mknod' in error and '--trust' in error
    with pytest.raises(TypeError):  # since what it makes is no agent
        main([*argv, '--trust'])
    assert marker.exists()


def own_run(catch_run, tmp_path, task):
    """A run of this user's, made here, of a task that is code."""
    config = elements.Config.load(catch_run / 'config.yaml')
    config = config.update(
        {'task': task, 'logdir': str(tmp_path / 'run'), 'env.own.size': 16}
    )
    checkpoint = Checkpoint(tmp_path / 'run' / 'ckpt')
    checkpoint.add('agent', factories.make_agent(config))
    checkpoint.save(5)
    checkpoint.wait()
    return tmp_path / 'run'


@pytest.mark.parametrize('change', ['copied', 'shared'])
def test_own_runs_play_their_pickled_environment_and_those_of_others_do_not(
    catch_run, tmp_path, capsys, change
):
    task = own.save(lambda: envs.Catch(16), tmp_path / 'run' / 'make_env.pkl')
    run = own_run(catch_run, tmp_path, task)
    flags = [*PLAY, '--out', str(tmp_path / 'out')]
    assert main(['eval', str(run), *flags]) == 0
    if change == 'copied':
        run = copied(run, tmp_path)
    else:
        (run / 'make_env.pkl').chmod(0o666)
    assert main(['eval', str(run), *flags]) == 2
    assert '--trust' in capsys.readouterr().err
    with pytest.raises(TrustError):
        foreign.take([], dreamerv3.load(run).config, False, False, run).check_task()


@pytest.mark.parametrize('command', ['eval', 'play', 'import', 'export'])
def test_help_tells_of_trust(capsys, command):
    with pytest.raises(SystemExit):
        main([command, '--help'])
    assert '--trust' in capsys.readouterr().out


def test_help_of_runs_tells_of_trust(capsys):
    assert main(['--help']) == 0
    assert '--trust' in capsys.readouterr().out


@pytest.mark.parametrize('name', ['agent.json', 'config.yaml', 'weights.safetensors'])
def test_pipes_in_a_bundle_are_refused(make_bundle, capsys, name):
    folder = make_bundle()
    (folder / name).unlink()
    os.mkfifo(folder / name)
    assert main(['eval', str(folder)]) == 2
    assert 'cannot be read' in capsys.readouterr().err
