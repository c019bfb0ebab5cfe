"""Help, the version, options with their comments, and output that is cut short."""

import contextlib
import re
import subprocess
import sys

import pytest

from dreamerv3 import config as config_lib
from dreamerv3.commands import describe, help_texts
from dreamerv3.main import TOOLS, main


def test_declared_options_are_those_of_the_defaults():
    defaults = config_lib.resolve([])[0].flat
    found = {option.name: option for option in describe.declared()}
    assert list(found) == list(defaults)
    assert all(option.comment for option in found.values())
    assert found['run.actor_addr'].value == "'localhost:{auto}'"
    assert found['agent.opt.lr'].value == '4e-5'
    assert found['replay.size'].comment.startswith('capacity in steps')


@pytest.mark.parametrize(
    'flags, expected, missing',
    [
        (['agent.opt.lr'], ['agent.opt.lr  4e-5  learning rate'], ['warmup']),
        (['agent.opt'], ['agent.opt.lr', 'agent.opt.warmup'], ['agent.enc']),
        (['agent.*units'], ['agent.enc.units', 'agent.value.units'], ['layers']),
        (['learning rate'], ['agent.opt.lr'], ['agent.enc']),
        (['train_ratio', '--configs', 'crafter'], ['512.0', 'default: 32.0'], []),
        (['batch_size', '--batch_size=8'], ['8', 'default: 16'], []),
    ],
)
def test_options_are_described_with_their_comments(capsys, flags, expected, missing):
    assert main(['config', '--describe', *flags]) == 0
    out = capsys.readouterr().out
    for text in expected:
        assert text in out
    for text in missing:
        assert text not in out


@pytest.mark.parametrize(
    'pattern, parts', [('zzz', ["'zzz'", 'dreamer config']), ('(', ['valid pattern'])]
)
def test_a_pattern_without_options_is_refused(capsys, pattern, parts):
    assert main(['config', '--describe', pattern]) == 2
    err = capsys.readouterr().err
    assert all(part in err for part in parts)


@pytest.mark.parametrize('command', [*config_lib.CHOICES['script'], 'demo', 'config'])
def test_each_command_that_takes_options_has_a_page_of_help(capsys, command):
    for argv in ([command, '--help'], ['help', command]):
        assert main(argv) == 0
        out = capsys.readouterr().out
        assert out.startswith(f'usage: dreamer {command} ')
        assert 'size12m' in out
        assert max(map(len, out.split('Presets:')[0].splitlines())) <= describe.WIDTH
    example = re.search(rf'^  dreamer {command}(.*)$', out, re.MULTILINE)[1]
    if command != 'config':
        config_lib.resolve(example.split())


@pytest.mark.parametrize('command', TOOLS)
def test_help_explains_commands_with_options_of_their_own(capsys, command):
    with contextlib.suppress(SystemExit):  # as argparse ends
        assert main(['help', command]) == 0
    out = capsys.readouterr().out
    assert re.match(rf'usage: dreamer {command}\b', out)


def test_version_names_this_package_and_jax(capsys):
    assert main(['--version']) == 0
    out = capsys.readouterr().out
    assert re.match(r'dreamer-parallel \d+\.\d+\.\d+, jax \d+\.\d+\.\d+, Python 3', out)


@pytest.mark.parametrize(
    'argv', [['tasks'], ['help'], ['config'], ['config', '--describe', '.*']], ids=str
)
def test_output_whose_reader_is_gone_is_no_error(argv):
    command = [sys.executable, '-m', 'dreamerv3', *argv]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        process.stdout.close()
        error = process.stderr.read()
    assert error == ''
    assert process.returncode == 141  # as of programs that SIGPIPE ends


def test_the_page_of_offline_names_no_task_that_is_not_asked_for():
    assert re.search(r"^  --task +'' ", help_texts.page('offline'), re.MULTILINE)
    assert re.search(r'^  --task +toy_catch ', help_texts.page('train'), re.MULTILINE)


def test_pages_name_options_that_exist():
    names = {option.name for option in describe.declared()}
    for command, (_, options, _) in help_texts.PAGES.items():
        assert set(options) <= names, command
