"""Arms: what a run trains, by preset, task, options and seed."""

import functools
import re
import shlex
from collections.abc import Iterable, Iterator
from typing import NamedTuple

__all__ = ['GATE', 'PRESETS', 'Preset', 'Run', 'named_run', 'parse_arms', 'runs_of']

GATE = 'gate'
PLAIN = 'plain'  # the arm without options
NAME = re.compile(r'[a-z0-9_]+')


class Preset(NamedTuple):
    """How to train tasks of a suite, and what to compare them with."""

    configs: tuple[str, ...]
    frames: float  # default budget, in environment frames
    reference: str = ''  # suite in the reference
    prefix: str = ''  # of its names there
    repeat: int = 1  # frames per agent step
    subtract_random: bool = False
    label: float = 1.0  # frames for which a frame of the reference stands
    flags: tuple[str, ...] = ()


# The settings of docs/results/same_settings.csv.
SAME_SETTINGS = ('--env.dmc.repeat=2', '--run.train_ratio=256', '--run.envs=16')

# What the reference calls a frame of DMC from vectors was half a frame, because the
# action repeat that it counted was off: docs/decisions/007.
_vectors = functools.partial(Preset, reference='dmc_proprio', prefix='dmc_', label=0.5)

PRESETS = {
    'atari100k': Preset(('atari100k', 'size12m'), 4e5, 'atari100k', 'atari_', 4, True),
    'dmc': _vectors(('dmc_proprio',), 2.5e5),
    'dmc_paper': _vectors(('dmc_paper',), 2.5e5, repeat=2),
    'dmc_2023': _vectors(('dmc_2023',), 1.01e5),
    'dmc_vision': Preset(('dmc_vision', 'size12m'), 1e6, 'dmc_vision', 'dmc_'),
    'crafter': Preset(('crafter', 'size12m'), 1e6),
    'toy': Preset(('tiny', 'demo'), 1e6),
    'gym': Preset(('tiny', 'cartpole'), 1e6),
    GATE: Preset(('dmc_proprio',), 8.2e4, repeat=2, flags=SAME_SETTINGS),
}


class Run(NamedTuple):
    preset: str
    task: str
    seed: int
    arm: str = ''

    @property
    def group(self) -> str:
        """Name of the runs that differ by their seed only."""
        arm = f'+{self.arm}' if self.arm else ''
        return f'{self.preset}{arm}-{self.task}'

    @property
    def name(self) -> str:
        return f'{self.group}-{self.seed}'


def named_run(name: str) -> Run | None:
    """The run whose `name` this is, None if it is that of something else."""
    group, _, rest = name.partition('-')
    preset, _, arm = group.partition('+')
    task, _, seed = rest.rpartition('-')
    if preset not in PRESETS or not seed.isdecimal():
        return None
    return Run(preset, task, int(seed), arm)


def runs_of(
    tasks: Iterable[str], arms: Iterable[str], seeds: Iterable[int]
) -> Iterator[Run]:
    """All combinations, seed after seed, so that the first seed of all comes first."""
    tasks, arms = list(tasks), list(arms)
    for seed in seeds:
        for task in tasks:
            preset, name = _split(task)
            yield from (Run(preset, name, seed, arm) for arm in arms)


def parse_arms(texts: Iterable[str]) -> dict[str, list[str]]:
    """`NAME: --flag value ...` of each arm as flags by name; `plain:` has none."""
    arms = {}
    for text in texts:
        name, colon, flags = text.partition(':')
        if not colon or not NAME.fullmatch(name):
            raise SystemExit(
                f"An arm is given as 'NAME: --option value ...' with a name of small "
                f"letters, digits and underscores, not as '{text}'."
            )
        arms['' if name == PLAIN else name] = shlex.split(flags)
    return arms or {'': []}


def _split(task: str) -> tuple[str, str]:
    """Preset and name of a task given as `name` or `preset:name`."""
    preset, _, name = task.rpartition(':')
    preset = preset or name.partition('_')[0]
    if preset not in PRESETS:
        raise SystemExit(f'No preset for {task!r}, there are {", ".join(PRESETS)}.')
    return preset, name
