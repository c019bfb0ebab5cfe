"""Files that say something about the project agree with each other."""

import pathlib
import re
import tomllib

import pytest
from ruamel.yaml import YAML

ROOT = pathlib.Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']


def read(*path):
    return YAML(typ='safe').load((ROOT.joinpath(*path)).read_text())


def test_the_citation_names_this_version():
    citation = read('CITATION.cff')
    assert citation['version'] == PROJECT['version']
    assert citation['license'] == PROJECT['license']


def test_the_workflow_tests_every_supported_version_of_python():
    versions = read('.github', 'workflows', 'test.yml')
    tested = versions['jobs']['test']['strategy']['matrix']['python']
    low, high = re.findall(r'3\.(\d+)', PROJECT['requires-python'])
    assert tested == [f'3.{minor}' for minor in range(int(low), int(high))]


def test_issue_templates_ask_for_what_exists():
    for path in (ROOT / '.github' / 'ISSUE_TEMPLATE').iterdir():
        for page in re.findall(r'docs/\w+\.md', path.read_text()):
            assert (ROOT / page).is_file(), f'{path.name} names {page}'
    templates = [p.name for p in (ROOT / '.github' / 'ISSUE_TEMPLATE').iterdir()]
    for name in templates:
        ids = [x.get('id') for x in read('.github', 'ISSUE_TEMPLATE', name)['body']]
        assert {'command', 'version'} <= set(ids)


def test_no_lock_file_of_uv_is_committed():
    """It would name the registry that it was made with."""
    assert 'uv.lock' in (ROOT / '.gitignore').read_text().splitlines()


def test_extras_that_messages_name_exist():
    named = set()
    for package in ('embodied', 'dreamerv3'):
        for path in (ROOT / package).rglob('*.py'):
            named |= set(re.findall(r'dreamer-parallel\[(\w+)\]', path.read_text()))
    assert 'cuda' in named
    assert named <= PROJECT['optional-dependencies'].keys()


CODE = ('embodied', 'dreamerv3', 'docs', 'bench', 'tests', 'examples')
NAMED = ['ARCHITECTURE.md', 'CONTRIBUTING.md', 'docs/decisions']


def pages():
    """The pages that lead to the code."""
    for name in NAMED:
        path = ROOT / name
        yield from sorted(path.glob('*.md')) if path.is_dir() else [path]


@pytest.mark.parametrize('page', list(pages()), ids=lambda path: path.name)
def test_files_and_folders_that_a_page_names_exist(page):
    below = [path for top in CODE for path in (ROOT / top).rglob('*')]
    files = [path.relative_to(ROOT).as_posix() for path in [*ROOT.iterdir(), *below]]
    named = re.findall(r'`([\w./]+(?:\.py|/))`', page.read_text())
    ends = [name.rstrip('/') for name in named]
    missing = [x for x in ends if not any(f'/{f}'.endswith(f'/{x}') for f in files)]
    assert missing == []
