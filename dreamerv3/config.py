"""Options of a run: reads configs.yaml, applies presets and flags, refuses mistakes.

Presets apply from left to right, then the flags. A name with characters such as `.*`
is a pattern and sets every option whose full name it matches. The type of an option is
that of its default.
"""

import difflib
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import elements
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedSeq

from embodied.core.errors import ConfigError
from embodied.core.renamed import renew

from . import module_options
from .module_options import MODULE

__all__ = ['defaults', 'dump', 'flags', 'load_presets', 'parse_flags', 'resolve']

CONFIGS = Path(__file__).with_name('configs.yaml')
DEFAULTS = 'defaults'  # the block in it that is no preset

# Defaults of one command instead of those in the file.
COMMAND_DEFAULTS = {'offline': {'task': ''}}  # recorded data need none

# Options that take one of a few words, or a list of them.
CHOICES = {
    'script': (
        'train',
        'train_eval',
        'eval_only',
        'offline',
        'parallel',
        'parallel_agent',
        'parallel_replay',
        'parallel_logger',
        'parallel_envs',
        'parallel_env',
    ),
    'engine': ('local', 'ray', 'slurm'),
    'ray.storage': ('shared', 'pinned'),
    'run.transport': ('native', 'portal'),
    'replay.latents': ('disk', 'ram'),
    'replay.sync': ('timer', 'ack'),
    'logger.outputs': ('terminal', 'jsonl', 'video', 'csv', 'tensorboard', 'wandb'),
    'logger.wandb.mode': ('online', 'offline'),
    'logger.video': ('gif', 'mp4'),
    'agent.opt.kind': ('laprop', 'adam'),
    'agent.policy_grad': ('reinforce', 'backprop'),
    'agent.representation': ('decoder', 'barlow'),
    'agent.reward.twohot': ('symexp', 'symlog'),
    'agent.value.twohot': ('symexp', 'symlog'),
    'jax.platform': ('auto', 'cpu', 'cuda'),
    'jax.compute_dtype': ('bfloat16', 'float32'),
}

# Smallest values of what nothing else checks before it is used.
MINIMA = {
    'replay.size': 1,
    'replay.chunksize': 1,
    'replay.max_gb': 0,
    'replay.sync_every': 0,
    'logger.fps': 1,
}

# Presets of 0.1.0 that are gone, with flags of the same settings, to resume runs.
REMOVED_PRESETS = {
    'atari100k_all_actions': '--configs atari100k --env.atari100k.actions all',
    'dmc_small_batch': '--configs dmc_paper size25m --batch_size 8 --batch_length 32 '
    '--run.train_ratio 64 --agent.opt.lr 3e-4',
}

RATIO = 'run.train_ratio'
SIZE = re.compile(r'agent\..*\.(deter|hidden|classes|stoch|depth|units)')


def resolve(
    flags: Sequence[str], base: elements.Config | None = None
) -> tuple[elements.Config, list[str]]:
    """The config that `--configs a b --some.option 1 ...` asks for, and warnings.

    base: options to change instead of the defaults, as those of an earlier run.
    """
    given = parse_flags(flags)
    module = '' if base is None else base.flat.get(MODULE, '')
    if MODULE in given:
        module = _convert(MODULE, '', given[MODULE])
    blocks = load_presets()
    options = blocks.pop(DEFAULTS) | module_options.defaults(module)
    if base is not None:
        # Options that are newer than the run keep their defaults.
        options |= {name: base.flat[name] for name in options if name in base.flat}
    presets = given.pop('configs', [])
    for name in presets:
        if name in REMOVED_PRESETS:
            raise ConfigError(
                f"The preset '{name}' was removed in 0.2.0. Its settings are "
                f'{REMOVED_PRESETS[name]}'
            )
        if name not in blocks:
            raise ConfigError(_unknown('preset', name, blocks, all_names=True))
        for key, value in blocks[name].items():
            for option in _matching(options, key, f'preset {name}'):
                options[option] = _convert(option, options[option], value)
    before = dict(options)
    notes: list[str] = []
    for key, texts in given.items():
        for option in _matching(options, key, 'flag'):
            options[option] = _convert(option, options[option], texts)
    options = renew(options, notes.append)
    if options[MODULE] != module:
        raise ConfigError(f'{MODULE} must be given by its full name: --{MODULE} VALUE')
    _check(options)
    notes += _warnings(presets, blocks, before, options)
    return elements.Config(options), notes


def load_presets(path: Path = CONFIGS) -> dict[str, dict[str, Any]]:
    """Blocks of the file by name, `defaults` among them, with full option names."""
    # Pure Python reads YAML 1.2, in which 4e-5 is a number, on every machine.
    content = YAML(typ='safe', pure=True).load(path.read_text())
    return {name: _flatten(block) for name, block in content.items()}


def defaults(module: str = '') -> dict[str, Any]:
    """All options with their defaults, also those that an own agent declares."""
    return load_presets()[DEFAULTS] | module_options.defaults(module)


def parse_flags(argv: Sequence[str]) -> dict[str, list[str]]:
    """`--a 1 --b=2 --c 3 4` as {'a': ['1'], 'b': ['2'], 'c': ['3', '4']}.

    A switch without a value gets none: `--d` is {'d': []}.
    """
    flags: dict[str, list[str]] = {}
    values: list[str] | None = None
    for arg in argv:
        if arg.startswith('--'):
            name, equals, value = arg[2:].partition('=')
            values = flags[name] = [value] if equals else []
        elif values is None:
            raise ConfigError(
                f"'{arg}' follows no flag. Options are given as --name value, presets "
                'as --configs name.'
            )
        else:
            values.append(arg)
    return flags


def dump(config: Mapping[str, Any]) -> str:
    """The config as YAML, one option per line, that `elements.Config.load` reads."""
    yaml = YAML()
    stream = io.StringIO()
    yaml.dump(_block_style(config), stream)
    return stream.getvalue()


def flags(config: elements.Config) -> list[str]:
    """The command line, without a command, that stands for a config."""
    usual = defaults(config.flat.get(MODULE, ''))
    lines = []
    for name, value in config.flat.items():
        if _convert(name, usual[name], usual[name]) != value:
            values = value if isinstance(value, tuple) else (value,)
            lines.append(f'--{name}={",".join(map(str, values))}')
    return lines


def _matching(options: Mapping[str, Any], key: str, origin: str) -> list[str]:
    """Full names of the options that a name or pattern stands for."""
    if key in options:
        return [key]
    below = [x.removeprefix(f'{key}.') for x in options if x.startswith(f'{key}.')]
    if below:
        members = dict.fromkeys(f'{key}.{x.partition(".")[0]}' for x in below)
        raise ConfigError(f"'{key}' is a group of options: {', '.join(members)}.")
    if elements.Config.IS_PATTERN.match(key):
        try:
            found = [name for name in options if re.fullmatch(key, name)]
        except re.error as e:
            raise ConfigError(f"'{key}' is not a valid pattern: {e}") from e
        if found:
            return found
        raise ConfigError(f"The pattern '{key}' of the {origin} matches no option.")
    message = _unknown(origin, key, [*options, 'configs'])
    raise ConfigError(message + module_options.hint(key, options))


def _unknown(kind: str, name: str, allowed: Iterable[str], all_names=False) -> str:
    allowed = list(allowed)
    # `--lr` stands for an option of which only the last part is known.
    same_end = [x for x in allowed if x.endswith(f'.{name}')]
    close = same_end + difflib.get_close_matches(name, allowed, n=4, cutoff=0.6)
    dashes = '--' if kind == 'flag' else ''
    message = f"Unknown {kind} '{dashes}{name}'."
    if close:
        names = ', '.join(dashes + x for x in dict.fromkeys(close))
        message += f' Did you mean {names}?'
    if all_names:
        message += f' There are: {", ".join(allowed)}.'
    elif not close:
        message += ' `dreamer config` prints all options.'
    return message


def _convert(name: str, default: Any, value: Any) -> Any:
    """`value`, from YAML or as texts of a flag, in the type of the default."""
    texts = value if isinstance(value, list | tuple) else [value]
    if not texts:
        if default is False or default is True:
            return True  # a switch, as in --quiet
        raise ConfigError(f'--{name} needs a value: --{name} value')
    if isinstance(default, tuple):
        if len(texts) == 1 and isinstance(texts[0], str):
            texts = texts[0].strip('[]').split(',')
        return tuple(_convert(name, default[0], _strip(x)) for x in texts)
    if len(texts) != 1:
        given = ' '.join(map(str, texts))
        raise ConfigError(f"{name} takes one value, not '{given}'.")
    (given,) = texts
    kind = type(default)
    try:
        return _PARSERS[kind](given)
    except (ValueError, TypeError, OverflowError) as e:
        raise ConfigError(
            f"{name} is {_KINDS[kind]}, not '{given}' (its default is {default})."
        ) from e


def _parse_bool(value: Any) -> bool:
    words = {'True': True, 'true': True, 'False': False, 'false': False}
    if isinstance(value, str) and value in words:
        return words[value]
    if isinstance(value, bool):
        return value
    raise ValueError(value)


def _parse_int(value: Any) -> int:
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            value = float(value)  # 1e6 is a whole number, too
    if isinstance(value, bool) or int(value) != value:
        raise ValueError(value)
    return int(value)


def _parse_float(value: Any) -> float:
    if isinstance(value, bool):
        raise ValueError(value)
    return float(value)


def _parse_str(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(value)
    return value


_PARSERS = {bool: _parse_bool, int: _parse_int, float: _parse_float, str: _parse_str}
_KINDS = {bool: 'True or False', int: 'a whole number', float: 'a number', str: 'text'}


def _strip(value: Any) -> Any:
    return value.strip() if isinstance(value, str) else value


def _check(options: Mapping[str, Any]) -> None:
    for name, allowed in CHOICES.items():
        value = options[name]
        for word in value if isinstance(value, tuple) else (value,):
            if word not in allowed:
                raise ConfigError(_unknown(f'{name} value', word, allowed, True))
    for name, minimum in MINIMA.items():
        if not options[name] >= minimum:
            raise ConfigError(f'{name}={options[name]} must be at least {minimum}.')


def _warnings(
    presets: Sequence[str],
    blocks: Mapping[str, Mapping[str, Any]],
    before: Mapping[str, Any],
    after: Mapping[str, Any],
) -> list[str]:
    """One line per flag that takes a run away from what its benchmark preset fixes."""
    benchmarks = [name for name in presets if {'task', RATIO} <= blocks[name].keys()]
    if not benchmarks:
        return []
    return [
        f'{name} is {after[name]} instead of {before[name]}: scores will not compare '
        f'with those of the preset {benchmarks[-1]}.'
        for name in before
        if before[name] != after[name] and (name == RATIO or SIZE.fullmatch(name))
    ]


def _flatten(block: Mapping[str, Any], prefix: str = '') -> dict[str, Any]:
    flat = {}
    for key, value in block.items():
        if isinstance(value, dict):
            flat.update(_flatten(value, f'{prefix}{key}.'))
        else:
            flat[prefix + key] = tuple(value) if isinstance(value, list) else value
    return flat


def _block_style(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _block_style(v) for k, v in value.items()}
    if isinstance(value, tuple):
        value = CommentedSeq(value)
        value.fa.set_flow_style()
    return value
