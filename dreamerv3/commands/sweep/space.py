"""Search space: the settings that `--vary` stands for: a grid, a list or draws."""

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import elements
import numpy as np

from embodied.core.errors import ConfigError

__all__ = ['PRESETS', 'Setting', 'settings_of']

# One point of the space: the text of each varied option, by full name.
Setting: TypeAlias = tuple[tuple[str, str], ...]

PRESETS = 'configs'  # may be varied like an option
OWN_FLAGS = {name: f'--{name}' for name in ('task', 'logdir', 'script')}
OWN_FLAGS['seed'] = '--seeds'
LOG = 'log:'  # begins a range that is drawn from by orders of magnitude
RANGE = re.compile(r'(log:)?(.+?)\.\.(.+)')
DIGITS = 4  # of a number that is drawn
TRIES = 100  # to draw a setting that was not drawn before


class Range(NamedTuple):
    """Numbers from `low` to `high`, both included."""

    low: float
    high: float
    log: bool  # each order of magnitude is as likely as any other
    whole: bool

    def draw(self, rng: np.random.Generator) -> str:
        if self.log:
            number = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
        elif self.whole:
            return str(int(rng.integers(int(self.low), int(self.high) + 1)))
        else:
            number = rng.uniform(self.low, self.high)
        number = float(f'{number:.0f}' if self.whole else f'{number:.{DIGITS}g}')
        number = min(max(number, self.low), self.high)  # which rounding may leave
        return f'{number:.0f}' if self.whole else f'{number:g}'


Values: TypeAlias = list[str] | Range


def settings_of(
    varied: Sequence[str],
    options: Mapping[str, Any],
    draws: int = 0,
    in_step: bool = False,
) -> list[Setting]:
    """All settings of a search; one that is empty if nothing is varied.

    varied: texts such as `agent.actent=1e-4,3e-4` and `agent.opt.lr=log:1e-5..1e-3`.
    options: defaults by full name. draws: settings that are drawn at random; more of
    them begin with the same ones. in_step: the first values of all options together,
    then the second ones; otherwise each with each.
    """
    axes: dict[str, Values] = {}
    for text in varied:
        name, values = _parse(text, options)
        if name in axes:
            raise ConfigError(f'--vary names {name} twice.')
        axes[name] = values
    if draws:
        return _draw(axes, draws)
    lists = {name: _listed(name, values) for name, values in axes.items()}
    if in_step and lists:
        return _in_step(lists)
    rows = itertools.product(*lists.values())
    return [tuple(zip(lists, row, strict=True)) for row in rows]


def _parse(text: str, options: Mapping[str, Any]) -> tuple[str, Values]:
    name, equals, words = text.partition('=')
    if not equals or not name or not all(words.split(',')):
        raise ConfigError(
            f"--vary '{text}' has no values: --vary OPTION=VALUE,VALUE or, with "
            '--random N, OPTION=LOW..HIGH or OPTION=log:LOW..HIGH.'
        )
    if name in OWN_FLAGS:
        raise ConfigError(f'{name} is varied by {OWN_FLAGS[name]}, not by --vary.')
    name = _full_name(name, options)
    if found := _range(words, name, options.get(name)):
        return name, found
    values = words.split(',')
    if len(set(values)) < len(values):
        raise ConfigError(f"--vary '{text}' names a value twice.")
    return name, values


def _full_name(name: str, options: Mapping[str, Any]) -> str:
    """The only option that ends like this; the name itself if there is none."""
    if name in options or elements.Config.IS_PATTERN.match(name):
        return name
    found = [option for option in options if option.endswith(f'.{name}')]
    return found[0] if len(found) == 1 else name


def _range(words: str, name: str, default: Any) -> Range | None:
    """The range that the words stand for; None if they are values."""
    match = RANGE.fullmatch(words)
    try:
        low, high = (float(x) for x in match.groups()[1:]) if match else (0.0, 0.0)
    except ValueError:
        match = None  # a path, for instance
    if match is None:
        if words.startswith(LOG):
            raise ConfigError(f'{name}={words} is no range: log:LOW..HIGH')
        return None
    log = match[1] is not None
    if not -math.inf < low < high < math.inf or (log and low <= 0):
        more = ' and above 0' if log else ''
        raise ConfigError(f'{name}={words}: LOW must be below HIGH{more}.')
    if isinstance(default, bool | str | tuple):
        raise ConfigError(f'{name}={words}: only numbers have ranges. List the values.')
    whole = isinstance(default, int)
    if whole and not (low.is_integer() and high.is_integer()):
        raise ConfigError(f'{name}={words}: {name} is a whole number.')
    return Range(low, high, log, whole)


def _listed(name: str, values: Values) -> list[str]:
    if isinstance(values, Range):
        raise ConfigError(
            f'{name} is varied over a range: say how many settings to draw from it '
            'with --random N, or list values.'
        )
    return values


def _in_step(lists: Mapping[str, list[str]]) -> list[Setting]:
    lengths = {name: len(values) for name, values in lists.items()}
    if len(set(lengths.values())) > 1:
        counts = ', '.join(f'{name} has {count}' for name, count in lengths.items())
        raise ConfigError(f'--list takes as many values of each option: {counts}.')
    rows = zip(*lists.values(), strict=True)
    return [tuple(zip(lists, row, strict=True)) for row in rows]


def _draw(axes: Mapping[str, Values], draws: int) -> list[Setting]:
    if not axes:
        raise ConfigError('--random draws values of what --vary names, which is empty.')
    found: dict[Setting, None] = {}
    for setting in itertools.islice(_endless(axes), draws * TRIES):
        found[setting] = None
        if len(found) == draws:
            return list(found)
    raise ConfigError(
        f'--random {draws}: there are only about {len(found)} different settings. '
        'Lower it, or leave it away to run all.'
    )


def _endless(axes: Mapping[str, Values]) -> Iterator[Setting]:
    """The same random settings in the same order each time."""
    rng = np.random.default_rng(0)
    while True:
        yield tuple(
            (name, x.draw(rng) if isinstance(x, Range) else str(rng.choice(x)))
            for name, x in axes.items()
        )
