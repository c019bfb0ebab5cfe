"""Jobs: the runs of a sweep, each with its options, its folder and how it has ended."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml.error import YAMLError

from embodied.core.errors import ConfigError
from embodied.core.outside import shown
from embodied.run.shared.outcome import DURATION, FINISHED, KILLED, Outcome

from ... import config as config_lib
from ...api.training import Run
from ...dashboard.figures.final_score import final_score
from .space import PRESETS, Setting

__all__ = [
    'COLUMNS',
    'Job',
    'describe',
    'failures',
    'is_complete',
    'is_failed',
    'jobs_of',
    'print_line',
    'summarize',
]

FAILED = 'failed'  # begins the state of such a run in the summary
NOT_STARTED = Outcome('not started', '')
LONGEST_NAME = 120  # characters that the varied options may add to a folder's name
HASH_DIGITS = 8
COLUMNS = ('task', 'seeds', 'mean', 'std', 'min', 'max')  # of the table, beside options


class Job(NamedTuple):
    """One run.

    setting: the varied options by full name, as texts. argv: all options of the run.
    """

    task: str
    seed: int
    logdir: Path
    setting: Setting = ()
    argv: tuple[str, ...] = ()

    @property
    def log(self) -> Path:
        return self.logdir.with_name(f'{self.logdir.name}.log')

    def is_over(self) -> bool:
        """Whether the run, with these very options, has nothing left to do.

        The program would find out as well, after seconds.
        """
        outcome = Run(self.logdir).outcome
        if outcome is None or not is_complete(outcome._asdict()):
            return False
        try:
            stored = Run(self.logdir).config.flat
        except (OSError, ValueError, YAMLError):
            return False  # The run itself says what is wrong with its folder.
        return stored == config_lib.resolve(self.argv)[0].flat


def jobs_of(
    folder: Path,
    tasks: Sequence[str],
    settings: Sequence[Setting],
    seeds: int,
    flags: Sequence[str],
) -> list[Job]:
    """All runs of a sweep, one seed after the other. Raises ConfigError if any of them
    has options that cannot be.

    flags: options of all runs, as on the command line.
    """
    plain = [_plain(setting, flags) for setting in settings]
    texts = [_one_line(setting) for setting in plain]
    if twice := {text for text in texts if texts.count(text) > 1}:
        raise ConfigError(f'Two runs would have the same options: {min(twice)}.')
    return [
        _job(folder, task, seed, setting, flags)
        for seed in range(seeds)
        for task in tasks
        for setting in plain
    ]


def _job(
    folder: Path, task: str, seed: int, setting: Setting, flags: Sequence[str]
) -> Job:
    logdir = folder / _name(task, setting, seed)
    own = [f'--task={task}', f'--seed={seed}', f'--logdir={logdir}']
    return Job(task, seed, logdir, setting, (*_with(setting, flags), *own))


def _name(task: str, setting: Setting, seed: int) -> str:
    words = _one_line(setting).replace(' ', '-')
    plain = _fit_for_file(words)
    if plain != words or len(plain) > LONGEST_NAME:
        digest = hashlib.sha256(repr(setting).encode()).hexdigest()[:HASH_DIGITS]
        plain = f'{plain[:LONGEST_NAME]}-{digest}'
    return '-'.join(x for x in (_fit_for_file(task), plain, str(seed)) if x)


def _fit_for_file(text: str) -> str:
    return re.sub(r'[^A-Za-z0-9_.=+-]+', '-', text)


def _with(setting: Setting, flags: Sequence[str]) -> list[str]:
    """The flags together with those of a setting, whose presets come last."""
    given = config_lib.parse_flags(flags)
    for name, text in setting:
        before = given.get(name, []) if name == PRESETS else []
        given[name] = [*before, text]
    return [word for name, texts in given.items() for word in (f'--{name}', *texts)]


def _plain(setting: Setting, flags: Sequence[str]) -> Setting:
    """The setting with one text per value: 1e-4 and 0.0001 are the same run.

    Raises ConfigError if there is no such option, or it does not take the value.
    """
    given = config_lib.parse_flags(flags)
    for name, _ in setting:
        if name in given and name != PRESETS:
            raise ConfigError(f'{name} is given for all runs, and varied as well.')
    flat = config_lib.resolve(_with(setting, flags))[0].flat
    return tuple((k, _text(flat[k]) if k in flat else text) for k, text in setting)


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ','.join(map(_text, value))
    if isinstance(value, float) and float(f'{value:g}') == value:
        return f'{value:g}'
    return str(value)


def describe(setting: Setting) -> dict[str, str]:
    """Values by the shortest names that tell the options apart."""
    names = [name for name, _ in setting]
    ends = [name.rpartition('.')[2] for name in names]
    short = [
        end if ends.count(end) == 1 and end not in COLUMNS else name
        for end, name in zip(ends, names, strict=True)
    ]
    return {name: text for name, (_, text) in zip(short, setting, strict=True)}


def _one_line(setting: Setting) -> str:
    return ' '.join(f'{name}={text}' for name, text in describe(setting).items())


# Summary


def summarize(
    job: Job, code: int | None, before: Mapping[str, Mapping[str, Any]] = {}
) -> dict[str, Any]:
    """The entry of a run. code: its exit code, None if it was not started this time.
    before: entries of the last time, by name."""
    last = before.get(job.logdir.name)
    if last and is_failed(last):
        return dict(last)
    run = Run(job.logdir)
    score = final_score(job.logdir)
    state, reason = _outcome(job, run, code)
    return {
        'run': job.logdir.name,
        'task': job.task,
        'options': dict(job.setting),
        'seed': job.seed,
        'state': state,
        'reason': reason,
        'steps': run.steps,
        'episodes': len(run.episodes),
        'score': None if score is None else round(score, 4),
    }


def _outcome(job: Job, run: Run, code: int | None) -> Outcome:
    """What the run itself says of its end, if it could."""
    outcome = run.outcome or NOT_STARTED
    if not code or outcome.state == KILLED:
        return outcome
    return Outcome(f'{FAILED} with {code}, see {job.log}', outcome.reason)


def is_complete(entry: Mapping[str, Any]) -> bool:
    """Whether a run has reached its limit."""
    return entry['state'] == FINISHED or entry['reason'] == DURATION


def is_failed(entry: Mapping[str, Any]) -> bool:
    return entry['state'].startswith(FAILED)


def print_line(entry: Mapping[str, Any], before: str = '') -> None:
    """Prints how a run is doing."""
    options = _one_line(tuple(entry['options'].items()))
    name = f'{entry["task"]} {options}'.strip()
    figures = f'{entry["episodes"]} episodes, score {entry["score"]}'
    text = f'{name} seed {entry["seed"]}: {entry["state"]}, step {entry["steps"]}, '
    print(before + shown(text + figures, keep=''), flush=True)


def failures(entries: Iterable[Mapping[str, Any]]) -> list[str]:
    """Names of the runs that have failed."""
    return [entry['run'] for entry in entries if is_failed(entry)]
