"""Pages of the documentation site that are made from the code: options and API."""

import importlib
import inspect
import re
from collections.abc import Iterable
from typing import Any

from mkdocs.structure.files import File, Files

from dreamerv3 import config as config_lib
from dreamerv3.commands import describe

GENERAL = 'general'
MODULES = re.compile(r'\b(?:\w+\.)+(?=[A-Z])')  # before the names of types

# What users call, in the order in which they meet it: module and names.
INTERFACE = {
    'Train, load, play': ('dreamerv3', ('train', 'Run', 'StopRun', 'load', 'evaluate')),
    'Trained agents': ('dreamerv3.api.loaded', ('LoadedAgent', 'Imagined')),
    'Contracts': (
        'embodied',
        ('Agent', 'Env', 'VectorEnv', 'Replay', 'Stream', 'Logger'),
    ),
    'Environments': (
        'embodied.envs',
        (
            'make',
            'tasks',
            'wrap',
            'FromGymnasiumVector',
            'FunctionalEnv',
            'FunctionalVectorEnv',
        ),
    ),
    'Loops in one process': (
        'embodied.run',
        ('train', 'train_eval', 'offline', 'eval_only'),
    ),
    'Distributed runs': ('embodied.run.parallel', ('combined',)),
    'Running environments': ('embodied', ('Driver', 'RandomAgent')),
    'Models in JAX': ('embodied.jax', ('Agent', 'Model')),
}


def on_files(files: Files, config: Any, **kwargs: Any) -> Files:
    """Adds the generated pages."""
    for name, content in (('options.md', options()), ('api.md', api())):
        files.append(File.generated(config, name, content=content))
    return files


def options() -> str:
    """Every option with its default and comment, by group, and the presets."""
    groups: dict[str, list[describe.Option]] = {}
    for option in describe.declared():
        top, dot, _ = option.name.partition('.')
        groups.setdefault(top if dot else GENERAL, []).append(option)
    parts = [
        '# Which options are there?',
        '```\ndreamer config --describe PATTERN   # the same in the terminal\n'
        'dreamer config --configs tiny ...    # the values of a command line\n```',
        'An option is given as `--name value` after the presets of `--configs`. A name '
        r'may be a pattern: `--.*\.units 64`. This page is made from `configs.yaml`.',
    ]
    for group, members in groups.items():
        rows = ['| option | default | |', '|---|---|---|']
        rows += [f'| `{x.name}` | `{x.value}` | {_cell(x.comment)} |' for x in members]
        parts += [f'## {group}', '\n'.join(rows)]
    blocks = config_lib.CONFIGS.read_text().split('\nsize1m:')[1]
    parts += ['## Presets', f'```yaml\nsize1m:{blocks}```']
    return '\n\n'.join(parts) + '\n'


def api() -> str:
    """The public interface from its docstrings."""
    parts = [
        '# What can be called from Python?',
        '```python\nimport dreamerv3, embodied\n```',
        '[From Python](python.md) has examples. This page is made from the docstrings.',
    ]
    for title, (module, names) in INTERFACE.items():
        parts.append(f'## {title}')
        home = importlib.import_module(module)
        for name in names:
            parts += _entry(f'{module}.{name}', getattr(home, name))
    return '\n\n'.join(parts) + '\n'


def _entry(name: str, thing: Any) -> Iterable[str]:
    yield f'### {name}'
    yield f'```python\n{_signature(name, thing)}\n```'
    yield _text(thing)
    if not inspect.isclass(thing):
        return
    for key, member in vars(thing).items():
        if key.startswith('_'):
            continue
        if inspect.isfunction(member):
            yield f'**{_signature(key, member, method=True)}**'
            yield _text(member)
        elif isinstance(member, property) and member.__doc__:
            yield f'**{key}**'
            yield _text(member)


def _signature(name: str, thing: Any, method: bool = False) -> str:
    signature = inspect.signature(thing)
    if method:
        first, *rest = signature.parameters.values()
        names = [str(x.replace(annotation=x.empty)) for x in rest]
        return f'`{name}({", ".join(names)})`'
    lines, is_open = [f'{name}('], True
    for value in signature.parameters.values():
        if value.kind is value.KEYWORD_ONLY and is_open:
            lines.append('    *,')
        is_open = is_open and value.kind not in (
            value.KEYWORD_ONLY,
            value.VAR_POSITIONAL,
        )
        lines.append(f'    {MODULES.sub("", str(value))},')
    return '\n'.join([*lines, ')'])


def _text(thing: Any) -> str:
    """The docstring; brackets of shapes are no links."""
    text = inspect.getdoc(thing) or ''
    return text.replace('[', '\\[')


def _cell(text: str) -> str:
    return text.replace('|', '\\|').replace('<', '&lt;')
