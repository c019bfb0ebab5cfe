"""The built wheel in an environment of its own, outside of the repository."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.request
import venv
import zipfile

import jax
import pytest

from embodied.logging import read_records

ROOT = pathlib.Path(__file__).parents[3]
SOURCES = ('dreamerv3', 'embodied', 'docs')
FILES = ('dreamer_parallel.py', 'pyproject.toml', 'README.md', 'LICENSE')
BUILD = 'import setuptools.build_meta as b, sys; b.build_wheel(sys.argv[1])'
# Of packages that the tests are run with; the wheel is installed without them.
DEPENDENCIES = pathlib.Path(jax.__file__).parents[1]


def execute(*command, **options):
    options = {'capture_output': True, 'text': True, **options}
    return subprocess.run([str(x) for x in command], **options)


@pytest.fixture(scope='module')
def wheel(tmp_path_factory):
    source, out = tmp_path_factory.mktemp('source'), tmp_path_factory.mktemp('wheel')
    for name in SOURCES:
        unwanted = shutil.ignore_patterns('__pycache__', 'results', '_site')
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=unwanted)
    for name in FILES:
        shutil.copy(ROOT / name, source / name)
    done = execute(sys.executable, '-W', 'ignore', '-c', BUILD, out, cwd=source)
    assert done.returncode == 0, done.stderr
    (path,) = out.glob('*.whl')
    return path


@pytest.fixture(scope='module')
def home(wheel, tmp_path_factory):
    """A virtual environment with the wheel; its dependencies are borrowed."""
    path = tmp_path_factory.mktemp('home')
    venv.create(path, with_pip=False)
    python = path / 'bin' / 'python'
    pip = (sys.executable, '-m', 'pip', '--python', python, 'install', '-q')
    done = execute(*pip, '--no-deps', '--no-index', wheel)
    assert done.returncode == 0, done.stderr
    (packages,) = path.glob('lib/python*/site-packages')
    (packages / 'borrowed.pth').write_text(f'{DEPENDENCIES}\n')
    return path


def run(home, folder, *argv, **environ):
    environ = {**os.environ, **environ}
    if 'PYTHONPATH' in os.environ and 'PYTHONPATH' not in environ:
        del environ['PYTHONPATH']
    return execute(home / 'bin' / 'dreamer', *argv, cwd=folder, env=environ)


def packages_of(home):
    return next(home.glob('lib/python*/site-packages'))


def test_the_wheel_holds_the_pages_that_messages_refer_to(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    code = [p.read_text() for x in SOURCES[:2] for p in (ROOT / x).rglob('*.py')]
    pages = set(re.findall(r'manual\.page\(\s*f?[\'"](\w+\.md)', '\n'.join(code)))
    assert {'your_environment.md', 'metrics.md'} <= pages
    assert {f'embodied/docs/{page}' for page in pages} <= names
    assert 'dreamerv3/dashboard/web/static/index.html' in names
    assert 'dreamerv3/agent/networks/kernels/imagine.cu' in names
    assert not [name for name in names if name.startswith(('tests/', 'bench/'))]


def test_an_installed_command_trains_outside_of_the_repository(home, tmp_path):
    version = run(home, tmp_path, '--version')
    assert str(packages_of(home) / 'dreamerv3') in version.stdout, version.stderr
    flags = ['--configs', 'tiny', '--random_agent', '--run.steps', '200']
    flags += ['--run.envs', '2', '--logdir', 'run']
    done = run(home, tmp_path, 'train', *flags)
    assert done.returncode == 0, done.stderr
    assert read_records(tmp_path / 'run' / 'metrics.jsonl')[-1]['step'] == 200


def test_advice_of_an_installed_command_is_a_page_that_exists(home, tmp_path):
    done = run(home, tmp_path, 'tasks', 'procgen')
    page = re.search(r'(/\S+\.md)#', done.stdout)[1]
    assert pathlib.Path(page).is_relative_to(home)
    assert pathlib.Path(page).is_file()


def test_packages_of_others_in_the_way_are_named(home, tmp_path):
    other = tmp_path / 'other'
    (other / 'embodied').mkdir(parents=True)
    (other / 'embodied' / '__init__.py').write_text('')
    done = run(home, tmp_path, 'tasks', PYTHONPATH=str(other))
    assert done.returncode == 2
    assert f'{other / "embodied"} takes the place of' in done.stderr
    assert 'Traceback' not in done.stderr
    module = home / 'bin' / 'python', '-m', 'dreamerv3'
    environ = {**os.environ, 'PYTHONPATH': str(other)}
    again = execute(*module, 'tasks', cwd=tmp_path, env=environ)
    assert (again.returncode, again.stderr) == (2, done.stderr)


def test_files_of_the_reference_among_ours_are_named(home, tmp_path):
    info = packages_of(home) / 'dreamerv3-1.5.0.dist-info'
    info.mkdir()
    try:
        (info / 'METADATA').write_text('Metadata-Version: 2.1\nName: dreamerv3\n')
        (info / 'RECORD').write_text('dreamerv3/__init__.py,,\n')
        done = run(home, tmp_path, 'tasks')
    finally:
        shutil.rmtree(info)
    assert done.returncode == 2
    assert 'The distribution dreamerv3 has installed files into' in done.stderr


LOAD = """
import sys, dreamerv3
agent = dreamerv3.load(sys.argv[1])
obs = {k: space.sample() for k, space in agent.obs_space.items()}
action, state = agent.act(obs)
assert set(action) == set(agent.act_space), action
print(agent.step)
"""


def block(page, begin):
    """The first Python block of a page that contains a text."""
    blocks = re.findall(r'```python\n(.*?)```', (ROOT / page).read_text(), re.DOTALL)
    return next(text for text in blocks if begin in text)


@pytest.mark.long
def test_the_path_of_a_stranger(home, tmp_path):
    """wheel -> demo -> own environment -> check -> train -> watch -> evaluate -> export
    -> load elsewhere. Sizes and steps are small; commands are those of the pages."""

    def dreamer(*argv, code=0):
        done = run(home, tmp_path, *argv)
        assert done.returncode == code, f'{argv}\n{done.stdout}\n{done.stderr}'
        return done.stdout

    def python(folder, *argv):
        environ = {k: v for k, v in os.environ.items() if k != 'PYTHONPATH'}
        done = execute(home / 'bin' / 'python', *argv, cwd=folder, env=environ)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    small = ('--configs', 'tiny', 'demo', 'debug', r'--.*\.mults', '2', '4')
    assert 'of the way' in dreamer('demo', *small, '--run.steps', '300')
    assert (tmp_path / 'demo' / 'curve.png').exists()

    (tmp_path / 'walk.py').write_text(block('docs/your_environment.md', '# walk.py'))
    assert 'No faults found' in dreamer('check-env', 'walk:make_env', '--steps', '200')

    flags = ('--configs', 'debug', '--task', 'walk:make_env', '--run.steps', '300')
    dreamer('train', *flags, '--logdir', 'runs/walk')
    assert read_records(tmp_path / 'runs' / 'walk' / 'metrics.jsonl')[-1]['step'] >= 300

    command = [home / 'bin' / 'dreamer', 'watch', 'runs', '--port', '0']
    environ = {**os.environ, 'HOME': str(tmp_path)}  # where caches go
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=tmp_path, env=environ, stdout=pipe, text=True
    ) as server:
        with urllib.request.urlopen(server.stdout.readline().split()[-1]) as page:
            assert 'Dreamer' in page.read().decode()
        server.terminate()

    assert '3 episodes of walk:make_env' in dreamer(
        'eval', 'runs/walk', '--episodes', '3'
    )
    dreamer('export', 'runs/walk', 'walker')
    elsewhere = tmp_path / 'elsewhere'
    shutil.copytree(tmp_path / 'walker', elsewhere / 'walker')
    (elsewhere / 'load.py').write_text(LOAD)
    assert int(python(elsewhere, 'load.py', 'walker')) >= 300

    script = block('README.md', 'dreamerv3.train')
    script = script.replace('steps=2e4', 'steps=200').replace("'tiny'", "'debug'")
    (tmp_path / 'mine.py').write_text(script)
    assert "'episodes': 10" in python(tmp_path, 'mine.py')


@pytest.mark.long
def test_a_full_install_brings_all_that_training_needs(wheel, tmp_path):
    """With the dependencies of the wheel alone, in the versions that pip chooses."""
    pip = (sys.executable, '-m', 'pip', '-q')
    probe = execute(*pip, 'download', '--no-deps', '-d', tmp_path, 'elements')
    if probe.returncode != 0:
        pytest.skip('needs a package index: configure pip')
    full = tmp_path / 'full'
    venv.create(full, with_pip=False)
    into = (*pip, '--python', full / 'bin' / 'python', 'install')
    done = execute(*into, f'{wheel}[web]')
    assert done.returncode == 0, done.stderr
    flags = ['--configs', 'tiny', 'debug', '--run.steps', '60', '--logdir', 'run']
    done = run(full, tmp_path, 'train', *flags)
    assert done.returncode == 0, done.stderr
    assert read_records(tmp_path / 'run' / 'metrics.jsonl')[-1]['step'] >= 60
