"""Options of a run: its config.yaml as a flat table, and which runs differ by seed."""

import hashlib
import json
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from .run_files import open_plain, printable

__all__ = ['PERSONAL', 'group_key', 'read_options']

LARGEST = 1 << 16  # bytes of a config that is read
MOST_BRACKETS = 500  # nested ones take the parser a time that grows as their square
MOST_OPTIONS = 2000
DEEPEST = 20  # levels of options; YAML can have circles
# Runs that differ only in these are seeds of one experiment.
PERSONAL = ('seed', 'logdir', 'replica')


def read_options(path: Path) -> dict[str, Any]:
    """Values by dotted names; {} if the file is missing or no config."""
    with open_plain(path) as file:
        data = file.read(LARGEST) if file else b''
    if not data or data.count(b'[') + data.count(b'{') > MOST_BRACKETS:
        return {}
    try:
        tree = YAML(typ='safe').load(data)
    except (YAMLError, ValueError, RecursionError):
        return {}
    flat: dict[str, Any] = {}
    _flatten(tree, '', flat, DEEPEST)
    return flat


def group_key(options: dict[str, Any]) -> str:
    """Equal for runs that are seeds of one experiment; '' if nothing is known."""
    rest = {k: v for k, v in options.items() if k not in PERSONAL}
    text = json.dumps(rest, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12] if rest else ''


def _flatten(value: Any, name: str, flat: dict[str, Any], depth: int) -> None:
    if len(flat) >= MOST_OPTIONS:  # a few lines of YAML can stand for billions
        return
    if isinstance(value, dict) and value and depth:
        for key, inner in value.items():
            _flatten(inner, f'{name}.{key}' if name else str(key), flat, depth - 1)
    elif name:
        plain = isinstance(value, int | float | bool) or value is None
        flat[printable(name)] = value if plain else printable(str(value)[:1000])
