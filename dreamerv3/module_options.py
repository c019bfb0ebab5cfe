"""Options of own agents: what the class declares that `agent.module` names.

    class Mine(dreamerv3.Dreamer):
        options = {
            'scale': 1.0,  # weight of its loss
        }

They are read from the file without running it. Launchers and environment workers know
all options, too, and must not load JAX; and a bundle may name the module of a stranger.
"""

import ast
import difflib
import importlib.util
import io
import math
import re
import tokenize
from collections.abc import Iterator, Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, NamedTuple

import elements

from embodied.core.errors import ConfigError
from embodied.envs.adapters import own

__all__ = [
    'GROUP',
    'MODULE',
    'OwnOption',
    'declared',
    'defaults',
    'flatten',
    'hint',
    'source',
]

MODULE, GROUP = 'agent.module', 'agent.own'
REFERENCE = re.compile(r'[A-Za-z_][\w.]*:[A-Za-z_]\w*')
NAME = re.compile(r'[A-Za-z_]\w*')
ATTRIBUTE = 'options'  # of the class
KINDS = frozenset({bool, int, float, str})


class OwnOption(NamedTuple):
    """An option with its full name, as the class declares it."""

    name: str
    default: Any
    comment: str


class _Class(NamedTuple):
    """A class where it is written."""

    module: str
    path: Path
    node: ast.ClassDef


def defaults(reference: str) -> dict[str, Any]:
    """Defaults by full name, of `module:Class`, or of no module as ''."""
    return {option.name: option.default for option in declared(reference)}


def declared(reference: str) -> list[OwnOption]:
    """The options of a class and of those that it is based on."""
    options: dict[str, OwnOption] = {}
    for part in _lineage(_named(reference)) if reference else ():
        options |= {option.name: option for option in _options(part)}
    return list(options.values())


def source(reference: str) -> Path:
    """The file that the class is written in."""
    return _named(reference).path


def flatten(options: Mapping[str, Any], prefix: str = GROUP) -> dict[str, Any]:
    """Nested options by full name, lists as tuples."""
    flat: dict[str, Any] = {}
    for name, value in options.items():
        full = f'{prefix}.{name}'
        if isinstance(value, Mapping):
            flat |= flatten(value, full)
        else:
            flat[full] = tuple(value) if isinstance(value, list) else value
    return flat


def hint(name: str, options: Mapping[str, Any]) -> str:
    """What to say of an unknown option, if its name is one of an own agent."""
    if not f'{name}.'.startswith(f'{GROUP}.'):
        return ''
    module = options[MODULE]
    if not module:
        return (
            f' {GROUP} are options of the class that --{MODULE} names; none is named.'
        )
    names = [x for x in options if x.startswith(f'{GROUP}.')]
    return f' {module} declares {", ".join(names) or "none"}.'


def _named(reference: str) -> _Class:
    """The class; raises if there is no such."""
    if not REFERENCE.fullmatch(reference):
        raise ConfigError(
            f'{MODULE}={reference!r} must be module:Class, as my_package.agent:MyAgent.'
        )
    module, _, name = reference.partition(':')
    if _file(module) is None:
        raise own.no_module(module)
    found = _find(module, name)
    if found is None:
        raise _no_class(module, name)
    return found


def _file(module: str) -> Path | None:
    """The source of a module, found without running it or the packages around it."""
    own.search_here()
    top, *rest = module.split('.')
    if top == '__main__':
        return None  # a program or notebook, which other processes cannot import
    spec, name = importlib.util.find_spec(top), top
    for part in rest:
        if spec is None or spec.submodule_search_locations is None:
            return None
        name = f'{name}.{part}'
        spec = PathFinder.find_spec(name, spec.submodule_search_locations)
    if spec is None or not str(spec.origin).endswith('.py'):
        return None
    return Path(str(spec.origin))


def _find(module: str, name: str, line: float = math.inf) -> _Class | None:
    """A class of the module, also one that it imports by name: the last one before
    `line`, since a class may be named as the one that it is based on."""
    path = _file(module)
    if path is None:
        return None
    for node in reversed(_parse(path).body):
        if node.lineno >= line:
            continue
        if isinstance(node, ast.ClassDef) and node.name == name:
            return _Class(module, path, node)
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    return _find(_home(node, module, path), alias.name)
    return None


def _home(node: ast.ImportFrom, module: str, path: Path) -> str:
    """Full name of the module that is imported from."""
    package = module if path.stem == '__init__' else module.rpartition('.')[0]
    name = '.' * node.level + (node.module or '')
    return importlib.util.resolve_name(name, package)


def _lineage(child: _Class) -> Iterator[_Class]:
    """The class and those that it is based on, which come first."""
    for base in child.node.bases:
        home, _, name = ast.unparse(base).rpartition('.')
        line = math.inf if home else child.node.lineno
        if parent := _find(home or child.module, name, line):
            yield from _lineage(parent)
    yield child


def _parse(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_bytes(), str(path))
    except SyntaxError as error:
        raise ConfigError(f'{path}, line {error.lineno}: {error.msg}.') from error


def _options(found: _Class) -> Iterator[OwnOption]:
    """Those that stand in the class itself."""
    for node in found.node.body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=value)
            ) if name == ATTRIBUTE and value is not None:
                try:
                    yield from _entries(value, _comments(found.path), GROUP)
                except ValueError as error:
                    raise ConfigError(_not_plain(found, value, str(error))) from error


def _entries(
    node: ast.expr, comments: Mapping[int, str], prefix: str
) -> Iterator[OwnOption]:
    if not isinstance(node, ast.Dict):
        raise ValueError(f'{ast.unparse(node)} is no dict')
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            raise ValueError(f'**{ast.unparse(value)} is no name')
        name = key.value if isinstance(key, ast.Constant) else None
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise ValueError(f'{ast.unparse(key)} is no name')
        if name.startswith('_') or hasattr(elements.Config, name):
            raise ValueError(f'{name!r} is reserved, so choose another name')
        full = f'{prefix}.{name}'
        if isinstance(value, ast.Dict):
            yield from _entries(value, comments, full)
        else:
            comment = comments.get(value.end_lineno or 0, '')
            yield OwnOption(full, _value(name, value), comment)


def _value(name: str, node: ast.expr) -> Any:
    refused = ValueError(f'{name!r} is {ast.unparse(node)}')
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError) as error:
        raise refused from error
    if isinstance(value, list):
        value = tuple(value)
    kinds = {type(x) for x in (value if isinstance(value, tuple) else (value,))}
    if len(kinds) != 1 or not kinds <= KINDS:
        raise refused
    return value


def _comments(path: Path) -> dict[int, str]:
    """Comments by line."""
    lines = io.BytesIO(path.read_bytes()).readline
    return {
        token.start[0]: token.string.lstrip('# ')
        for token in tokenize.tokenize(lines)
        if token.type == tokenize.COMMENT
    }


def _not_plain(found: _Class, node: ast.expr, reason: str) -> str:
    return (
        f'{found.path}, line {node.lineno}: the options of {found.node.name} cannot be '
        f'used: {reason}. They are read without running the file, so write them out: a '
        'dict of names with numbers, texts, True or False, and lists of one of these '
        'kinds.'
    )


def _no_class(module: str, name: str) -> ConfigError:
    path = _file(module)
    assert path is not None
    classes = [x.name for x in _parse(path).body if isinstance(x, ast.ClassDef)]
    close = difflib.get_close_matches(name, classes, n=3) or classes
    there = f' It has {", ".join(close)}.' if close else ''
    return ConfigError(
        f'{path} has no class {name!r}, and imports none of that name.{there} '
        f'{MODULE} is module:Class.'
    )
