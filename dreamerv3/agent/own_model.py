"""The class of the model: Dreamer or what `agent.module` names, imported and checked,
with the options that are classes around it.
"""

from typing import Any

import elements

from embodied.core.errors import ConfigError
from embodied.envs.adapters import own

from .. import module_options
from .model import Dreamer

__all__ = ['model_class']


def model_class(config: elements.Config) -> type[Dreamer]:
    """Dreamer, or what `agent.module` names, with the options around it."""
    kind = _own_class(config)
    agent = config.agent
    if not agent.harmony and agent.representation == 'decoder':
        return kind
    from .options import Barlow, Harmony

    around: list[type[Dreamer]] = [Harmony] if agent.harmony else []
    around += [Barlow] if agent.representation == 'barlow' else []
    return type(kind.__name__, (*around, kind), {})


def _own_class(config: elements.Config) -> type[Dreamer]:
    reference = config.agent.module
    if not reference:
        return Dreamer
    expected = module_options.defaults(reference)  # raises if it is not there
    module, _, name = reference.partition(':')
    found = getattr(own.import_user(module), name)
    if not (isinstance(found, type) and issubclass(found, Dreamer)):
        raise ConfigError(
            f'{reference} is {found!r}, which must be a subclass of dreamerv3.Dreamer.'
        )
    if (declared := _options(found)) != expected:
        raise ConfigError(
            f'{reference} has the options {_names(declared)}, and those that its file '
            f'shows without being run are {_names(expected)}. Write all of them into '
            'the dict `options` of the class itself.'
        )
    return found


def _options(kind: type[Dreamer]) -> dict[str, Any]:
    """Those of the class and of all that it is based on."""
    options: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        options |= module_options.flatten(vars(base).get('options', {}))
    return options


def _names(options: dict[str, Any]) -> str:
    return ', '.join(f'{k}={v}' for k, v in options.items()) or 'none'
