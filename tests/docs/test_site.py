"""The documentation site: builds, and refuses broken links."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from ruamel.yaml import YAML

import dreamerv3
from dreamerv3.commands import describe, help_texts
from dreamerv3.main import TOOLS

ROOT = pathlib.Path(__file__).parents[2]
sys.path.append(str(ROOT / 'tests' / 'dreamerv3' / 'dashboard'))
import browsing  # noqa: E402

USERS = ('Start', 'Running')  # sections of the navigation
NEEDED = 'needs a browser: apt-get install chromium'
PARTS = ('docs', 'mkdocs.yml', 'README.md', 'ARCHITECTURE.md', 'CONTRIBUTING.md')
PARTS += ('CHANGELOG.md', 'CITATION.cff', 'embodied', 'dreamerv3', 'examples', 'bench')


def build(folder):
    command = [sys.executable, '-m', 'mkdocs', 'build', '--strict']
    env = {**os.environ, 'NO_MKDOCS_2_WARNING': '1'}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)


@pytest.fixture(scope='module')
def copy(tmp_path_factory):
    """The repository as far as the site needs it, and the site."""
    folder = tmp_path_factory.mktemp('repository')
    for name in PARTS:
        if (ROOT / name).is_dir():
            ignore = shutil.ignore_patterns('__pycache__')
            shutil.copytree(ROOT / name, folder / name, ignore=ignore)
        else:
            shutil.copy(ROOT / name, folder)
    result = build(folder)
    assert result.returncode == 0, result.stdout + result.stderr
    return folder


def test_every_page_is_built_and_those_of_the_root_are_linked(copy):
    site = copy / 'site'
    pages = {path.stem for path in (copy / 'docs').glob('*.md')}
    pages |= {'index', 'architecture', 'contributing', 'changelog'}
    assert pages <= {path.stem for path in site.glob('*.html')}
    assert 'href="architecture.html"' in (site / 'one_machine.html').read_text()
    linking = (site / 'change_the_algorithm.html').read_text()
    assert 'href="source/embodied/core/base.py.html"' in linking
    source = (site / 'source/embodied/core/base.py.html').read_text()
    assert 'The contracts that the rest' in source
    assert 'href="quickstart.html"' in (site / 'index.html').read_text()


def test_options_and_interface_are_pages_made_from_the_code(copy):
    options = (copy / 'site' / 'options.html').read_text()
    for option in describe.declared():
        assert f'<code>{option.name}</code>' in options
    interface = (copy / 'site' / 'api.html').read_text()
    for name in ('dreamerv3.train', 'embodied.run.parallel.combined', 'imagine('):
        assert name in interface
    sentence = dreamerv3.train.__doc__.splitlines()[0].rpartition('; ')[2]
    assert sentence in interface


@pytest.mark.skipif(not browsing.CHROMIUM, reason=NEEDED)
def test_the_search_works_in_a_folder_without_a_server(copy):
    with browsing.browser() as browser:
        page = browser.new_page()
        page.goto((copy / 'site' / 'index.html').as_uri())
        page.fill('input.md-search__input', 'update_queue')
        found = page.wait_for_selector('.md-search-result__link')
        assert found.get_attribute('href').startswith('file:///')


def user_pages():
    """Names of the pages for those who use it, in the order of the navigation."""
    navigation = YAML(typ='safe').load((ROOT / 'mkdocs.yml').read_text())['nav']
    for section in navigation:
        for title, pages in section.items():
            if title in USERS:
                yield from (path for page in pages for path in page.values())


def test_each_user_page_is_a_question_with_a_command_and_an_outcome():
    pages = list(user_pages())
    assert len(pages) > 10
    for name in pages:
        text = (ROOT / 'docs' / name).read_text()
        assert text.splitlines()[0].endswith('?'), name
        assert len(re.findall(r'^What you get: [^\n]', text, re.MULTILINE)) == 1, name
        commands = re.findall(r'(?:^|`)dreamer ([a-z][\w-]*)', text, re.MULTILINE)
        assert commands, name
        for command in commands:
            assert command in help_texts.PAGES or command in TOOLS, f'{name}: {command}'


def test_all_decisions_are_in_the_navigation(copy):
    index = (copy / 'site' / 'index.html').read_text()
    for path in (copy / 'docs' / 'decisions').glob('[0-9]*.md'):
        assert f'href="decisions/{path.stem}.html"' in index


def test_pages_fetch_nothing_from_elsewhere(copy):
    for path in (copy / 'site').rglob('*.html'):
        tags = re.findall(r'<(?:script|link|img)[^>]*>', path.read_text())
        assert [tag for tag in tags if re.search('(src|href)="?https?:', tag)] == []


def test_broken_links_are_refused(copy):
    links = ['nowhere.md', '../embodied/nowhere.py', 'metrics.md#no-such-heading']
    page = copy / 'docs' / 'replay.md'
    page.write_text(page.read_text() + ''.join(f'\n[x]({link})\n' for link in links))
    result = build(copy)
    assert result.returncode != 0
    assert [x for x in links if f"'{x}'" not in result.stdout + result.stderr] == []
