"""The documentation site: builds, and refuses broken links."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PARTS = ('docs', 'mkdocs.yml', 'README.md', 'ARCHITECTURE.md', 'CONTRIBUTING.md')
PARTS += ('CHANGELOG.md', 'embodied', 'dreamerv3', 'examples', 'bench')


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
    distributed = (site / 'distributed.html').read_text()
    assert 'href="architecture.html"' in distributed
    assert 'href="source/embodied/core/base.py.html"' in distributed
    source = (site / 'source/embodied/core/base.py.html').read_text()
    assert 'The five contracts' in source
    assert 'href="quickstart.html"' in (site / 'index.html').read_text()


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
