"""Options that an own agent declares are read without running its module."""

import itertools
import re
import textwrap

import elements
import pytest

from dreamerv3 import config as config_lib
from dreamerv3 import module_options
from dreamerv3.commands import describe
from dreamerv3.main import main
from embodied.core.errors import ConfigError
from embodied.run.shared.resume import check_resume

EXAMPLE = 'own_agent:FindReward'
NUMBERS = itertools.count()
PLAIN = """
    import dreamerv3

    raise RuntimeError('this module was run')

    class Mine(dreamerv3.Dreamer):
        options = {
            'scale': 0.5,  # weight of the loss
            'head': {
                'units': 64,  # its width
            },
            'mults': [2, 3],
            'greedy': False,
        }
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes a module in the working directory; its name."""
    monkeypatch.chdir(tmp_path)

    def call(text, path=None):
        name = f'own{next(NUMBERS)}'
        file = tmp_path / (path or f'{name}.py')
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
        return name

    return call


def resolve(*flags, **options):
    return config_lib.resolve(flags, **options)[0]


def test_options_are_read_with_their_comments_and_the_module_is_not_run(write):
    assert module_options.declared(f'{write(PLAIN)}:Mine') == [
        ('agent.own.scale', 0.5, 'weight of the loss'),
        ('agent.own.head.units', 64, 'its width'),
        ('agent.own.mults', (2, 3), ''),
        ('agent.own.greedy', False, ''),
    ]


def test_options_of_classes_that_it_is_based_on_count_too(write):
    base = write(PLAIN)
    child = write(
        f"""
        import {base}
        from {base} import Mine as Base

        class Child(Base):
            options = {{'scale': 2.0, 'more': 1}}

        class Other({base}.Mine):
            pass
        """
    )
    found = module_options.defaults(f'{child}:Child')
    assert (found['agent.own.scale'], found['agent.own.more']) == (2.0, 1)
    assert found['agent.own.head.units'] == 64
    assert module_options.defaults(f'{child}:Other')['agent.own.scale'] == 0.5


def test_a_class_may_be_named_as_the_one_that_it_is_based_on(write):
    base = write(PLAIN)
    child = write(
        f"""
        from {base} import Mine

        class Mine(Mine):
            options = {{'scale': 2.0}}
        """
    )
    found = module_options.defaults(f'{child}:Mine')
    assert (found['agent.own.scale'], found['agent.own.head.units']) == (2.0, 64)


def test_a_package_may_import_the_class_from_one_of_its_modules(write, tmp_path):
    name = f'package{next(NUMBERS)}'
    write('from .inner.agent import Mine', f'{name}/__init__.py')
    write("raise RuntimeError('this package was run')", f'{name}/inner/__init__.py')
    write(PLAIN, f'{name}/inner/agent.py')
    for reference in (f'{name}:Mine', f'{name}.inner.agent:Mine'):
        assert module_options.defaults(reference)['agent.own.scale'] == 0.5


CLASS = 'class Mine:\n    options = '


@pytest.mark.parametrize(
    ('text', 'words'),
    [
        ('class Mime:\n    pass', "no class 'Mine'.*It has Mime"),
        ('x = 1', "no class 'Mine'"),
        ('class Mine(:', 'line 1'),
        (CLASS + 'dict(scale=1)', 'line 2.*is no dict.*write them out'),
        (CLASS + "{'scale': 1 / 3}", 'line 2.*write them out'),
        (CLASS + "{'scale': None}", "'scale' is None"),
        (CLASS + "{'scale': []}", r"'scale' is \[\]"),
        (CLASS + "{'my scale': 1}", 'is no name'),
        (CLASS + '{**BASE}', r'\*\*BASE is no name'),
        (CLASS + '{KEY: 1}', 'KEY is no name'),
        (CLASS + "{'scale': SCALE}", "'scale' is SCALE"),
        (CLASS + "{'scale': {[1]}}", r"'scale' is \{\[1\]\}"),
        (CLASS + "{'scales': [1, 0.5]}", r'\[1, 0.5\].*lists of one of these kinds'),
        (CLASS + "{'values': 1}", "'values' is reserved"),
        (CLASS + "{'_scale': 1}", "'_scale' is reserved"),
    ],
)
def test_classes_whose_options_cannot_be_read_are_explained(write, text, words):
    with pytest.raises(ConfigError, match=f'(?s){words}'):
        resolve(f'--agent.module={write(text)}:Mine')


@pytest.mark.parametrize(
    ('reference', 'words'),
    [
        ('own_agent', 'must be module:Class'),
        ('own agent:Mine', 'must be module:Class'),
        ('no_such_module:Mine', "no module 'no_such_module'"),
        ('os.nothing:Mine', "no module 'os.nothing'"),
        ('__main__:Mine', "no module '__main__'"),
    ],
)
def test_modules_that_are_not_there_are_explained(reference, words):
    with pytest.raises(ConfigError, match=words):
        resolve(f'--agent.module={reference}')


def test_options_are_given_saved_and_taken_over_like_all_others(write):
    name = f'{write(PLAIN)}:Mine'
    flags = [f'--agent.module={name}', '--agent.own.scale', '2', '--configs', 'size1m']
    config = resolve(*flags, '--agent.own.greedy')
    own = {'scale': 2.0, 'head': {'units': 64}, 'mults': (2, 3), 'greedy': True}
    assert config.agent.own == own
    again = resolve(*config_lib.flags(config))
    assert again == config
    later = resolve('--agent.own.scale=3', base=config)
    assert (later.agent.module, later.agent.own.scale) == (name, 3.0)
    assert later.agent.own.greedy is True


def test_presets_of_sizes_reach_options_of_the_same_names(examples):
    flags = [f'--agent.module={EXAMPLE}', '--configs']
    assert resolve(*flags, 'size1m').agent.own.units == 64
    assert resolve(*flags, 'size200m').agent.own.units == 1024


@pytest.mark.parametrize(
    ('flags', 'words'),
    [
        (['--agent.own.scael=1'], 'Did you mean --agent.own.scale.*declares.*units'),
        (['--agent.own.scale=much'], 'agent.own.scale is a number'),
        (['--agent.own=1'], 'is a group of options: agent.own.scale'),
    ],
)
def test_mistakes_in_own_options_are_explained(examples, flags, words):
    with pytest.raises(ConfigError, match=words):
        resolve(f'--agent.module={EXAMPLE}', *flags)


def test_own_options_without_a_module_are_explained():
    with pytest.raises(ConfigError, match='--agent.module names; none is named'):
        resolve('--agent.own.scale=1')


def test_describe_shows_own_options(examples, capsys):
    flags = [f'--agent.module={EXAMPLE}', '--agent.own.scale=0.5']
    assert main(['config', '--describe', 'agent.own', *flags]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(
        r' +agent.own.scale +0.5 +weight of the loss \(default: 1.0\)', lines[0]
    )
    assert any('agent.own.units' in line and 'their width' in line for line in lines)
    assert main(['config', *flags]) == 0
    assert 'scale: 0.5' in capsys.readouterr().out
    assert not [x for x in describe.declared() if x.name.startswith('agent.own')]


@pytest.mark.parametrize('old', ['', EXAMPLE, None])
def test_a_run_goes_on_with_its_module_only(examples, write, old):
    before = resolve(f'--agent.module={old or ""}')
    if old is None:  # a run of a version without the option
        flat = {k: v for k, v in before.flat.items() if k != 'agent.module'}
        before = elements.Config(flat)
    other = f'{write(PLAIN)}:Mine'
    with pytest.raises(ConfigError, match=f'agent.module: {old or "..?"} -> {other}'):
        check_resume(before, resolve(f'--agent.module={other}'))
    assert check_resume(before, resolve(f'--agent.module={old or ""}')) == []
