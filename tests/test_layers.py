"""The packages import each other as ARCHITECTURE.md says, and in no other way."""

import ast
import collections
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TOPS = ('embodied', 'dreamerv3')
EVERYTHING = 'everything'
ROW = re.compile(r'^\| `([\w.]+)` \| (.+) \|$', re.MULTILINE)


def layers() -> dict[str, set[str]]:
    """What each package may import, as the document says."""
    text = (ROOT / 'ARCHITECTURE.md').read_text()
    section = text.partition('\n## Layers\n')[2].partition('\n## ')[0]
    rows = dict(ROW.findall(section))
    allowed = {}
    for package, cell in rows.items():
        names = {_full(name) for name in re.findall(r'`([\w.]+)`', cell)}
        others = set(rows) - {package}
        allowed[package] = others - names if cell.startswith(EVERYTHING) else names
    return allowed


def _full(name: str) -> str:
    return name if name in TOPS else f'embodied.{name}'


def package_of(module: str) -> str:
    """The package of the table that a module belongs to; '' for foreign ones."""
    top, *rest = module.split('.')
    if top not in TOPS:
        return ''
    return f'{top}.{rest[0]}' if top == 'embodied' and rest else top


def modules() -> list[Path]:
    return [path for top in TOPS for path in sorted((ROOT / top).rglob('*.py'))]


def imported(path: Path) -> Iterator[str]:
    """Full names of what a module imports, also inside of functions."""
    folder = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = folder[: len(folder) - node.level + 1] if node.level else ()
            module = '.'.join([*above, *([node.module] if node.module else [])])
            yield from (f'{module}.{alias.name}' for alias in node.names)


def arrows(path: Path) -> set[str]:
    """Other packages of ours that a module imports."""
    own = package_of('.'.join(path.relative_to(ROOT).with_suffix('').parts))
    return {package_of(name) for name in imported(path)} - {'', own}


def test_the_document_knows_every_package():
    folders = {x.parent.name for x in (ROOT / 'embodied').glob('*/__init__.py')}
    known = {f'embodied.{name}' for name in folders} | set(TOPS) - {'embodied'}
    assert set(layers()) == known


@pytest.mark.parametrize('package', layers())
def test_packages_import_only_what_the_document_allows(package):
    wrong = {}
    for path in modules():
        name = '.'.join(path.relative_to(ROOT).with_suffix('').parts)
        if package_of(name) == package:
            # The top of a package of ours hands on names; `import embodied` is one.
            beyond = arrows(path) - layers()[package] - {'embodied'}
            if beyond:
                wrong[str(path.relative_to(ROOT))] = beyond
    assert wrong == {}


def test_nothing_below_the_agent_imports_jax():
    wrong = [
        str(path.relative_to(ROOT))
        for path in modules()
        if package_of('.'.join(path.relative_to(ROOT).with_suffix('').parts))
        not in ('embodied.jax', 'dreamerv3')
        and any(name.split('.')[0] in ('jax', 'jaxlib') for name in imported(path))
    ]
    assert wrong == []


MANY = 15  # files of one folder
ONE_PER_NAME = ('suites', 'commands')  # folders with a file per suite, per command


def test_a_folder_holds_few_files():
    counts = collections.Counter(path.parent for path in modules())
    large = [x.name for x, count in counts.items() if count > MANY]
    assert set(large) <= set(ONE_PER_NAME)


def test_no_file_name_occurs_three_times():
    tops = [*TOPS, 'bench', 'examples']
    paths = [path for top in tops for path in (ROOT / top).rglob('*.py')]
    counts = collections.Counter(path.name for path in paths)
    del counts['__init__.py']
    assert [name for name, count in counts.items() if count > 2] == []
