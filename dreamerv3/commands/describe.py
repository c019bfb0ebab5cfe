"""`dreamer config`: prints options, and explains them by their comments."""

import re
import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

import elements

from embodied.core.errors import ConfigError

from .. import config as config_lib
from .. import module_options
from ..module_options import MODULE

__all__ = ['Option', 'declared', 'describe', 'presets', 'table']

DEFAULTS = 'defaults'
LINE = re.compile(r'( *)([\w]+):\s*([^#]*?)\s*(?:#\s*(.*?)\s*)?')
INDENT = 2  # spaces per level of configs.yaml
NAMES, VALUES, WIDTH = 30, 16, 100  # most columns of names, of values, in all


class Option(NamedTuple):
    """An option as configs.yaml declares it."""

    name: str
    value: str
    comment: str


def declared() -> list[Option]:
    """All options in the order of configs.yaml, with defaults and comments."""
    found: list[Option] = []
    path: list[str] = []
    for line in _block(config_lib.CONFIGS.read_text()):
        match = LINE.fullmatch(line)
        if match is None:
            continue  # an empty line, or one with a comment alone
        indent, key, value, comment = match.groups()
        path = [*path[: len(indent) // INDENT - 1], key]
        if value:
            found.append(Option('.'.join(path), value, comment or ''))
    return found


def _own(module: str) -> list[Option]:
    """Those that the class of `agent.module` declares."""
    return [
        Option(option.name, _text(option.default), option.comment)
        for option in module_options.declared(module)
    ]


def presets() -> list[str]:
    """The names that --configs takes."""
    return [name for name in config_lib.load_presets() if name != DEFAULTS]


def describe(pattern: str, config: elements.Config | None = None) -> list[Option]:
    """Options whose name is `pattern`, lies in that group or matches it; or else those
    whose name or comment contains it.

    config: its values take the place of the defaults, which the comments then name.
    """
    module = config.agent.module if config is not None else ''
    options = [*declared(), *_own(module)]
    try:
        regex = re.compile(pattern, re.IGNORECASE)
    except re.error as error:
        raise ConfigError(f"'{pattern}' is not a valid pattern: {error}") from error
    inside = [x for x in options if regex.fullmatch(x.name)]
    inside = inside or [x for x in options if x.name.startswith(f'{pattern}.')]
    found = inside or [x for x in options if regex.search(f'{x.name} {x.comment}')]
    if not found:
        raise ConfigError(
            f"No option has '{pattern}' in its name or comment. `dreamer config` "
            'prints all options.'
        )
    if config is None:
        return found
    defaults = config_lib.resolve([f'--{MODULE}={module}'])[0].flat
    return [_valued(x, config.flat[x.name], defaults[x.name]) for x in found]


def table(options: Sequence[Option], prefix: str = '') -> list[str]:
    """Lines with name, value and comment of each option."""
    names = min(NAMES, max(len(prefix + x.name) for x in options))
    values = min(VALUES, max(len(x.value) for x in options))
    indent = ' ' * (names + values + 6)
    lines = []
    for option in options:
        head = f'  {prefix + option.name:{names}}  {option.value:{values}}  '
        lines += textwrap.wrap(
            head + option.comment,
            WIDTH,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return lines


def _valued(option: Option, value: Any, default: Any) -> Option:
    """With a value, and the default in the comment if that differs."""
    if value == default:
        return option
    return Option(
        option.name, _text(value), f'{option.comment} (default: {option.value})'
    )


def _text(value: Any) -> str:
    return ', '.join(map(str, value)) if isinstance(value, tuple) else str(value)


def _block(text: str) -> list[str]:
    """The lines of the defaults."""
    lines = text.splitlines()
    rest = lines[lines.index(f'{DEFAULTS}:') + 1 :]
    ends = (i for i, line in enumerate(rest) if line[:1] not in ('', ' '))
    return rest[: next(ends)]
