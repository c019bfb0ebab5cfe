"""Options of a run: its config.yaml as a flat table, and which runs differ by seed."""

import hashlib
import json
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from .files import open_plain, printable

__all__ = ['PERSONAL', 'group_key', 'read_options']

LARGEST = 1 << 18  # bytes of a config that is read
MOST_OPTIONS = 2000
# Runs that differ only in these are seeds of one experiment.
PERSONAL = ('seed', 'logdir', 'replica')


def read_options(path: Path) -> dict[str, Any]:
    """Values by dotted names; {} if the file is missing or no config."""
    with open_plain(path) as file:
        data = file.read(LARGEST) if file else b''
    try:
        tree = YAML(typ='safe').load(data)
    except (YAMLError, ValueError, RecursionError):
        return {}
    flat: dict[str, Any] = {}
    _flatten(tree, '', flat)
    return flat


def group_key(options: dict[str, Any]) -> str:
    """Equal for runs that are seeds of one experiment; '' if nothing is known."""
    rest = {k: v for k, v in options.items() if k not in PERSONAL}
    text = json.dumps(rest, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12] if rest else ''


def _flatten(value: Any, name: str, flat: dict[str, Any]) -> None:
    if len(flat) >= MOST_OPTIONS:  # a few lines of YAML can stand for billions
        return
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            _flatten(inner, f'{name}.{key}' if name else str(key), flat)
    elif name:
        plain = isinstance(value, int | float | bool) or value is None
        flat[printable(name)] = value if plain else printable(str(value)[:1000])
