"""Which device trains is said at the start; a CPU is no place for a large agent."""

import os
import subprocess
import sys

import pytest

from dreamerv3 import accelerator
from dreamerv3 import config as config_lib
from dreamerv3.main import main
from embodied.core.errors import ConfigError


def resolve(*flags):
    return config_lib.resolve(flags)[0]


@pytest.mark.parametrize(
    'flags, refused',
    [
        ([], True),
        (['--configs', 'size50m'], True),
        (['--configs', 'size12m'], False),
        (['--configs', 'tiny'], False),
        (['--jax.platform', 'cpu'], False),
    ],
    ids=str,
)
def test_a_large_agent_needs_an_accelerator_or_insistence(monkeypatch, flags, refused):
    monkeypatch.delenv('JAX_PLATFORMS')  # by which these tests insist on the CPU
    if not refused:
        accelerator.check(resolve(*flags))
        return
    with pytest.raises(ConfigError) as error:
        accelerator.check(resolve(*flags))
    for part in ('size1m', 'size12m', 'tiny', '--jax.platform cpu', '[cuda]'):
        assert part in str(error.value)


def test_the_environment_variable_of_jax_insists_as_well(monkeypatch):
    monkeypatch.setenv('JAX_PLATFORMS', 'cpu')
    accelerator.check(resolve())


@pytest.mark.parametrize('command', ['train', 'parallel'])
def test_a_large_agent_is_refused_before_the_folder_of_its_run_exists(
    monkeypatch, tmp_path, capsys, command
):
    """So that the same command with the preset of the advice can use that folder."""
    monkeypatch.delenv('JAX_PLATFORMS')
    logdir = tmp_path / 'run'
    assert main([command, '--run.envs', '1', '--logdir', str(logdir)]) == 2
    assert 'size1m or size12m' in capsys.readouterr().err
    assert not logdir.exists()


@pytest.mark.parametrize('flags', [['--random_agent'], ['--engine', 'ray']], ids=str)
def test_a_large_agent_elsewhere_or_none_is_not_refused_early(monkeypatch, flags):
    monkeypatch.delenv('JAX_PLATFORMS')
    accelerator.check_early(resolve('--script', 'parallel', *flags))


@pytest.mark.long
def test_a_role_with_a_large_agent_ends_with_the_advice(tmp_path):
    """Where JAX has a plugin, only the process of the agent can know."""
    code = (
        'import sys\nfrom dreamerv3 import accelerator, main\n'
        'accelerator.check_early = lambda config: None\n'
        'sys.exit(main.main(sys.argv[1:]))'
    )
    environ = {k: v for k, v in os.environ.items() if k != 'JAX_PLATFORMS'}
    command = [sys.executable, '-c', code, 'parallel', '--run.envs', '1']
    command += ['--logdir', str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environ)
    assert done.returncode == 2, done.stderr
    assert 'size1m or size12m' in done.stderr
    assert 'Traceback' not in done.stderr


def test_the_start_of_training_names_the_device(tmp_path, capsys):
    flags = ['--configs', 'tiny', 'debug', '--run.steps', '8', '--run.save_every', '0']
    flags += ['--logger.outputs', 'jsonl', '--logdir', str(tmp_path / 'a')]
    assert main(['train', *flags]) == 0
    assert 'dreamer: training on the CPU (' in capsys.readouterr().err
    assert main(['train', *flags, '--quiet']) == 0
    assert capsys.readouterr().err == ''
