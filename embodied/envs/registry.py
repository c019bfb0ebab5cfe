"""Registry: turns task names into environments, wrapped the standard way."""

import difflib
import importlib
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from ..core.base import Env
from ..core.errors import ConfigError, SpaceError
from . import catalog, extras
from .adapters import own
from .adapters.infos import parse_names
from .conversion import BoundAction, ConvertArrays
from .vector.rows import members_of
from .vector.seeds import Seeds
from .vector.wrappers import VectorRepeat, VectorTimeLimit, on_host
from .wrappers import (
    ActionRepeat,
    CheckSpaces,
    ClipAction,
    NormalizeAction,
    ResizeImage,
    TimeLimit,
    UnifyDtypes,
)

OWN = 'own'  # the suite of users' environments
# Suites whose tasks are also written `<suite>:<name>`, since their names are foreign.
WITH_COLON = ('gym', 'envpool', 'gymnax', 'craftax', 'navix', 'brax', 'playground')
SHOWN = 3  # names of a suite in an error message

__all__ = [
    'Suite',
    'adjust',
    'is_wrapped',
    'label',
    'make',
    'make_bare',
    'names_code',
    'parse',
    'settings_of',
    'tasks',
    'wrap',
]


class Suite(NamedTuple):
    """A family of tasks.

    `names` are what follows `<suite>_`, or describe that in `<...>` if there is no end
    of them. `extra` is the optional dependency to install, empty if none.
    """

    suite: str
    names: tuple[str, ...]
    extra: str
    installed: bool


def make(task: str, seed: Seeds = None, **settings: Any) -> Env:
    """The environment of a task, ready for an agent.

    Tasks are `<suite>_<name>`, `<suite>:<id>` with the ids of a library such as
    Gymnasium, or `<module>:<factory>`. `settings` are the options `env.<suite>` of the
    configuration.
    """
    env = make_bare(task, seed, **settings)
    try:
        _refuse_faults(task, env)
        return wrap(env)
    except SpaceError:
        env.close()
        raise


def make_bare(task: str, seed: Seeds = None, **settings: Any) -> Env:
    """The same without the standard wrapping, as the suite or factory makes it."""
    suite, name = parse(task)
    if suite not in _SUITES or not _SUITES[suite].has(name):
        raise _unknown_task(task)
    allowed = settings_of(suite)
    unknown = [key for key in settings if key not in allowed]
    if unknown:
        raise ConfigError(
            f'Tasks of the suite {suite!r} have no settings {unknown}. They have '
            f'{", ".join(allowed) or "none"}.'
        )
    return _SUITES[suite].maker()(name, seed, **settings)


def parse(task: str) -> tuple[str, str]:
    """Suite and name of a task."""
    head, colon, rest = task.partition(':')
    if colon and head in WITH_COLON:
        return head, rest
    if own.is_reference(task):
        return OWN, task
    suite, _, name = task.partition('_')
    return ('', task) if suite == OWN else (suite, name)


def names_code(task: str) -> bool:
    """Whether making a task imports a module or unpickles a file that its name tells.

    Besides `<module>:<factory>` and `pickle:<file>` that are ids of Gymnasium with a
    module, `gym:<module>:<id>`, or with a package, `gym:<package>/<id>`.
    """
    suite, name = parse(task)
    if suite == OWN or ':' in name:
        return True
    namespace, slash, _ = name.partition('/')
    return suite == 'gym' and bool(slash) and namespace not in own.PACKAGES


def settings_of(suite: str) -> tuple[str, ...]:
    """Names of the settings that tasks of a suite take; none if there is no such."""
    if suite not in _SUITES:
        return ()
    return tuple(inspect.signature(_SUITES[suite].maker()).parameters)[2:]


def tasks() -> list[Suite]:
    """All suites with the names of their tasks."""
    return [
        Suite(name, entry.names, entry.extra, extras.installed(entry.package))
        for name, entry in _SUITES.items()
    ]


def label(suite: str, name: str) -> str:
    """The task that a suite and one of its names stand for."""
    return name if suite == OWN else f'{suite}_{name}'


def wrap(env: Any, repeat: int = 1, length: int = 0, size: int = 0) -> Env:
    """Wraps an environment of ours, Gymnasium or dm_env as agents expect it, single or
    a vector environment.

    From the inside: steps per action, time limit in such steps, size of images (the
    defaults leave each alone); continuous actions in [-1, 1]; dtypes that agents know;
    checks of all values. Clipping comes outside of the checks, since policies sample
    beyond the bounds of continuous actions.
    """
    env = adjust(own.adapt(env), repeat, length, size)
    continuous = [k for k, v in env.act_space.items() if v.dtype.kind == 'f']
    for key in continuous:
        env = NormalizeAction(env, key)
    env = CheckSpaces(UnifyDtypes(env))
    for key in continuous:
        # Directions without finite bounds are left alone by both.
        space = env.act_space[key]
        env = ClipAction(env, key, space.low, space.high)
    return env


def is_wrapped(env: Any) -> bool:
    """Whether an environment has come from `make` or `wrap`."""
    return isinstance(env, CheckSpaces | ClipAction)


def adjust(
    env: Any,
    repeat: int = 1,
    length: int = 0,
    size: int = 0,
    bound: float = 0.0,
    convert: bool = False,
) -> Any:
    """Steps per action, time limit in such steps, size of images.

    bound: of action directions that have none. convert: see ConvertArrays. The defaults
    leave each of them alone. Vector environments give NumPy arrays then.
    """
    env = on_host(env)
    has_members = bool(members_of(env))
    if convert:
        env = ConvertArrays(env)
    if bound:
        env = BoundAction(env, bound)
    if repeat != 1:
        env = VectorRepeat(env, repeat) if has_members else ActionRepeat(env, repeat)
    if length:
        env = VectorTimeLimit(env, length) if has_members else TimeLimit(env, length)
    if size:
        env = ResizeImage(env, size)
    return env


def _refuse_faults(task: str, env: Any) -> None:
    """Raises what `dreamer check-env` calls an error of the spaces."""
    from .checking.faults import static_findings

    # Resizing, outermost in `adjust`, gives any image the form of a sound one.
    bare = env.env if isinstance(env, ResizeImage) else env
    for finding in static_findings(bare.obs_space, bare.act_space):
        if finding.severity == 'error':
            raise SpaceError(f'{task}: {finding.what} {finding.fix}')


def _make_toy(name: str, seed: int | None, size: int = 64, board: int = 8) -> Env:
    if name == 'catch':
        from .builtin.catch import Catch

        return Catch(size, board, seed)
    from .builtin.reach import Reach

    return Reach(seed)


def _make_dummy(name: str, seed: int | None, size: int = 64, length: int = 100) -> Env:
    from .builtin.dummy import Dummy

    return Dummy(name, size, length)


def _make_gym(
    name: str,
    seed: Any,
    size: int = 64,
    repeat: int = 1,
    length: int = 0,
    bound: float = 0.0,
    convert: bool = False,
    log: str = '',
    vector: bool = False,
    num: int = 16,
) -> Env:
    from .adapters.from_gym import FromGym
    from .vector.gymnasium_vector import make_members

    names = parse_names(log)
    env: Any
    if vector:
        env = make_members(name, num, seed, names)
    else:
        env = FromGym(name, seed=seed, log=names)
    return adjust(env, repeat, length, size, bound, convert)


def _make_envpool(
    name: str,
    seed: Seeds,
    num: int = 16,
    threads: int = 0,
    size: int = 64,
    repeat: int = 1,
    length: int = 0,
    bound: float = 0.0,
    convert: bool = True,
    log: str = '',
) -> Env:
    from .vector.envpool_vector import make_pool

    env = make_pool(name, seed, num, threads, parse_names(log))
    return adjust(env, repeat, length, size, bound, convert)


def _make_own(
    name: str,
    seed: int | None,
    size: int = 64,
    repeat: int = 1,
    length: int = 0,
    bound: float = 0.0,
    convert: bool = False,
    log: str = '',
) -> Env:
    env = own.build(own.find(name), seed, parse_names(log))
    return adjust(env, repeat, length, size, bound, convert)


class _Entry(NamedTuple):
    """`make(name, seed, **settings)` is a function, or `module:name` in this package,
    to be imported when it is needed."""

    make: Callable[..., Env] | str
    names: tuple[str, ...]
    package: str  # shows whether the extra is installed
    extra: str = ''

    def has(self, name: str) -> bool:
        return name in self.names or self.names[0].startswith('<')

    def maker(self) -> Callable[..., Env]:
        if not isinstance(self.make, str):
            return self.make
        module, _, name = self.make.partition(':')
        return getattr(importlib.import_module(f'embodied.envs.{module}'), name)


FUNCTIONAL = 'vector.functional'

_SUITES = {
    'toy': _Entry(_make_toy, ('catch', 'reach'), 'numpy'),
    'dummy': _Entry(_make_dummy, ('disc', 'cont', 'mixed'), 'numpy'),
    'gym': _Entry(_make_gym, catalog.GYM, 'gymnasium'),
    OWN: _Entry(_make_own, catalog.OWN, 'numpy'),
    'atari': _Entry('suites.atari:Atari', catalog.ATARI, 'ale_py', 'atari'),
    'atari100k': _Entry('suites.atari:atari100k', catalog.ATARI100K, 'ale_py', 'atari'),
    'dmc': _Entry('suites.dmc:DMC', catalog.DMC, 'dm_control', 'dmc'),
    'crafter': _Entry('suites.crafter:Crafter', catalog.CRAFTER, 'crafter', 'crafter'),
    'minigrid': _Entry(
        'suites.minigrid:make_minigrid', catalog.MINIGRID, 'minigrid', 'minigrid'
    ),
    'memorymaze': _Entry(
        'suites.memory_maze:make_memory_maze',
        catalog.MEMORY_MAZE,
        'memory_maze',
        'memorymaze',
    ),
    'bsuite': _Entry('suites.bsuite:make_bsuite', catalog.BSUITE, 'bsuite', 'bsuite'),
    'dmlab': _Entry('suites.dmlab:DMLab', catalog.DMLAB, 'deepmind_lab', 'dmlab'),
    'minecraft': _Entry(
        'suites.minecraft:Minecraft', catalog.MINECRAFT, 'minerl', 'minecraft'
    ),
    'procgen': _Entry('suites.procgen:ProcGen', catalog.PROCGEN, 'procgen', 'procgen'),
    'envpool': _Entry(_make_envpool, catalog.ENVPOOL, 'envpool', 'envpool'),
    'gymnax': _Entry(
        f'{FUNCTIONAL}.gymnax_env:make_gymnax', catalog.GYMNAX, 'gymnax', 'gymnax'
    ),
    'craftax': _Entry(
        f'{FUNCTIONAL}.craftax_env:make_craftax', catalog.CRAFTAX, 'craftax', 'craftax'
    ),
    'navix': _Entry(
        f'{FUNCTIONAL}.navix_env:make_navix', catalog.NAVIX, 'navix', 'navix'
    ),
    'brax': _Entry(f'{FUNCTIONAL}.brax_env:make_brax', catalog.BRAX, 'brax', 'brax'),
    'playground': _Entry(
        f'{FUNCTIONAL}.playground_env:make_playground',
        catalog.PLAYGROUND,
        'mujoco_playground',
        'playground',
    ),
}


def _unknown_task(task: str) -> ConfigError:
    known = [label(s, name) for s, entry in _SUITES.items() for name in entry.names]
    close = difflib.get_close_matches(task, known, n=3)
    hint = f' Closest matches: {", ".join(close)}.' if close else ''
    shown = [label(s, _abbreviate(entry.names)) for s, entry in _SUITES.items()]
    return ConfigError(
        f'There is no task {task!r}.{hint} Tasks: {", ".join(shown)}. '
        '`dreamer tasks` lists all of them.'
    )


def _abbreviate(names: tuple[str, ...]) -> str:
    if len(names) == 1:
        return names[0]
    shown = ','.join(names[:SHOWN])
    return f'{{{shown},...}}' if len(names) > SHOWN else f'{{{shown}}}'
