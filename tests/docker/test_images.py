"""Dockerfile and compose file, as far as they can be checked without an engine."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from dreamerv3 import config as config_lib

ROOT = Path(__file__).parents[2]
OPTIONS = '${OPTIONS:---configs tiny}'
ADDRESSES = {'agent': 'actor_addr', 'replay': 'replay_addr', 'logger': 'logger_addr'}


def tool(name):
    return shutil.which(name, path=str(Path(sys.executable).parent))


def test_hadolint_has_nothing_to_say_about_the_images():
    subprocess.run([tool('hadolint'), ROOT / 'Dockerfile'], check=True)


def test_the_images_are_made_of_what_they_need():
    """What is copied is let in, and what is installed is an extra of ours."""
    text = (ROOT / 'Dockerfile').read_text()
    copied = [x.split()[:-1] for x in re.findall(r'^COPY (.*)$', text, re.M)]
    allowed = re.findall(r'^!(.*)$', (ROOT / '.dockerignore').read_text(), re.M)
    assert sorted(sum(copied, [])) == sorted(allowed)
    assert re.findall(r'^FROM \S+ AS (\w+)$', text, re.M) == ['base', 'cpu', 'cuda']
    extras = set(
        re.findall(r'^(\w+) = \[', (ROOT / 'pyproject.toml').read_text(), re.M)
    )
    for given in re.findall(r'"\.\[(.*)\$\{EXTRAS\}\]"', text):
        assert set(given.split(',')) <= extras


@pytest.mark.parametrize('name', ['compose.yaml', 'compose.cuda.yaml'])
def test_the_schema_of_compose_allows_the_services(name):
    command = [tool('check-jsonschema'), '--builtin-schema', 'vendor.compose-spec']
    subprocess.run([*command, ROOT / name], check=True)


def test_the_services_find_each_other():
    yaml = YAML(typ='safe', pure=True)
    services = yaml.load(ROOT / 'compose.yaml')['services']
    for role in ('agent', 'replay', 'logger', 'env'):
        command = services[role]['command'].replace(OPTIONS, '--configs tiny')
        script, *flags = command.split()
        assert script in (f'parallel_{role}', f'parallel_{role}s')
        config, _ = config_lib.resolve(flags)
        assert config.logdir == '/data/run'
        for server, name in ADDRESSES.items():
            host, port = config.run[name].split(':')
            assert host == ('0.0.0.0' if server == role else server)
            assert int(port) == 7000 + list(ADDRESSES).index(server)
    assert '/data/run/keys' in services['keys']['command'][0]
