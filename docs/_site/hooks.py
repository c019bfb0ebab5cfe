"""Hooks of the documentation site: pages from outside of docs/, and links to them.

README, ARCHITECTURE and others stay at the root of the repository, where people look
for them; sources that pages link to become pages, too. So links are written as they
work in the repository and rewritten for the site. What does not exist is left alone,
and the strict build refuses it.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
ROOT_PAGES = {
    'README.md': 'index.md',
    'ARCHITECTURE.md': 'architecture.md',
    'CONTRIBUTING.md': 'contributing.md',
    'CHANGELOG.md': 'changelog.md',
}
DOCS = 'docs/'
DECISIONS = 'docs/decisions'
SHIM = 'iframe-worker.js'  # polyfill by the author of the theme
LINK = re.compile(r'(?<=\]\()(?!\w+:|#)([^)#\s]+)(?=[)#])')
LANGUAGES = {'.py': 'python', '.yaml': 'yaml', '.toml': 'toml'}


def on_config(config: Any, **kwargs: Any) -> Any:
    """Adds the decisions to the navigation, in the order of their numbers."""
    pages = sorted((ROOT / DECISIONS).glob('[0-9]*.md'))
    paths = [str(path.relative_to(ROOT / DOCS)) for path in pages]
    overview = f'{DECISIONS.removeprefix(DOCS)}/README.md'
    section = {'Decisions': [{'Overview': overview}, *paths]}
    config.nav.insert(len(config.nav) - 1, section)
    return config


def on_files(files: Files, config: Any, **kwargs: Any) -> Files:
    """Adds the pages of the root and of all sources that some page links to."""
    texts = {name: (ROOT / name).read_text() for name in ROOT_PAGES}
    for name, text in texts.items():
        page = ROOT_PAGES[name]
        files.append(File.generated(config, page, content=_rewrite(text, name)))
    for file in files.documentation_pages():
        if file.abs_src_path:
            texts[DOCS + file.src_uri] = Path(file.abs_src_path).read_text()
    for source in sorted(_linked_sources(texts)):
        language = LANGUAGES.get(Path(source).suffix, '')
        code = (ROOT / source).read_text()
        content = f'# {source}\n\n````{language}\n{code}````\n'
        files.append(File.generated(config, f'source/{source}.md', content=content))
    shim = (ROOT / DOCS / '_site' / SHIM).read_text()
    files.append(File.generated(config, f'assets/{SHIM}', content=shim))
    return files


def on_page_markdown(markdown: str, page: Any, **kwargs: Any) -> str:
    if page.file.generated_by:
        return markdown
    return _rewrite(markdown, DOCS + page.file.src_uri)


def _rewrite(text: str, name: str) -> str:
    """Links of the file `name` of the repository as the site needs them."""
    here = posixpath.dirname(_place(name))

    def replace(match: re.Match) -> str:
        target = _target(match[1], name)
        if not (ROOT / target).is_file():
            return match[0]
        return posixpath.relpath(_place(target), here or '.')

    return LINK.sub(replace, text)


def _linked_sources(texts: dict[str, str]) -> set[str]:
    found = set()
    for name, text in texts.items():
        for match in LINK.finditer(text):
            target = _target(match[1], name)
            if _place(target).startswith('source/') and (ROOT / target).is_file():
                found.add(target)
    return found


def _target(link: str, name: str) -> str:
    """The file of the repository that a link in the file `name` means."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), link))


def _place(name: str) -> str:
    """Where a file of the repository is on the site."""
    if name in ROOT_PAGES:
        return ROOT_PAGES[name]
    if name.startswith(DOCS):
        return name.removeprefix(DOCS)
    return f'source/{name}.md'
