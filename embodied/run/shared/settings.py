"""Settings of the loops: reads, checks and completes the `args` that they are given."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...core.checkpoint import RUN_SUBFOLDER
from ...core.errors import ConfigError
from ...core.limiters import steps_before_training
from .outcome import STEPS

__all__ = ['BATCH_SHAPES', 'NEEDED', 'Settings']

NEEDED = ('logdir', 'batch_size', 'batch_length')  # must be given to the loops

# Sizes of batches; in configs.yaml they are outside of `run`.
BATCH_SHAPES = (
    'batch_size',
    'batch_length',
    'report_length',
    'consec_train',
    'consec_report',
)
POSITIVE = (
    'envs',
    'eval_eps',
    'eval_every',
    *BATCH_SHAPES,
    'report_batches',
    'keep',
    'film_frames',
)
NOT_NEGATIVE = (
    'steps',
    'duration',
    'replay_context',
    'eval_envs',
    'film_every',
    'timeline',
)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Options of one run.

    The defaults are those of dreamerv3/configs.yaml, which describes the options; only
    the default folder is `logdir` in the working directory.
    """

    logdir: Path = Path('logdir')
    batch_size: int = 16
    batch_length: int = 64
    steps: int = 10_000_000_000
    duration: float = 0.0
    train_ratio: float = 32.0
    envs: int = 16
    eval_envs: int = 4
    eval_eps: int = 1
    report_length: int = 32
    consec_train: int = 1
    consec_report: int = 1
    replay_context: int = 1
    log_every: float = 10.0
    report_every: float = 300.0
    report_batches: int = 1
    save_every: float = 60.0
    from_checkpoint: str = ''
    from_checkpoint_regex: str = '.*'
    debug: bool = False
    eval_every: int = 10_000
    env_processes: bool = True
    keep: int = 1
    film_every: float = 60.0
    film_frames: int = 300
    trust: bool = False
    usage: bool = True
    timeline: float = 0.0

    @classmethod
    def read(
        cls, args: Mapping[str, Any], needed: Sequence[str] = NEEDED
    ) -> 'Settings':
        """From an `elements.Config` or a dict, which may hold other keys, too.

        needed: the keys that it must hold.
        """
        args, fields = dict(args), dataclasses.fields(cls)
        if isinstance(usage := args.get('usage'), Mapping):  # a switch per meter
            args['usage'] = any(usage.values())
        missing = [name for name in needed if name not in args]
        if missing:
            raise ConfigError(
                f'The args of the loop lack {", ".join(missing)}. They hold '
                f'{", ".join(needed)} and whatever differs from its default in '
                'dreamerv3/configs.yaml: report_length, consec_train, consec_report, '
                "replay_context and the options of 'run'."
            )
        given = {f.name: _convert(f, args[f.name]) for f in fields if f.name in args}
        settings = cls(**given)
        settings._check()
        return settings

    @property
    def checkpoints(self) -> Path:
        return self.logdir / RUN_SUBFOLDER

    @property
    def last_step(self) -> int:
        """Step of the logger at which the run ends."""
        return self.steps

    @property
    def step_limit(self) -> str:
        """Name of the option that says so."""
        return STEPS

    @property
    def batch_steps(self) -> int:
        """Replayed steps per update."""
        return self.batch_size * self.batch_length

    def sequence_length(self, replay: Any) -> int:
        """Steps per sequence of the replay for training."""
        length = self.consec_train * self.batch_length + self.replay_context
        return _length_of(replay) or length

    def minimum(self, replay: Any) -> int:
        """Steps in the replay before training."""
        length = self.sequence_length(replay)
        return steps_before_training(self.batch_size, length, self.envs)

    def eval_minimum(self, replay: Any) -> int:
        """Steps in the eval replay before reports."""
        length = self.consec_report * self.report_length + self.replay_context
        return steps_before_training(1, _length_of(replay) or length, self.eval_envs)

    @property
    def parallel(self) -> bool:
        """Whether environments run in processes of their own."""
        return self.env_processes and not self.debug

    def _smallest(self) -> dict[str, float]:
        """Smallest value of each bounded field."""
        return {**dict.fromkeys(POSITIVE, 1), **dict.fromkeys(NOT_NEGATIVE, 0)}

    def _check(self) -> None:
        for name, least in self._smallest().items():
            if not getattr(self, name) >= least:  # also if it is not a number
                raise ConfigError(
                    f'{name}={getattr(self, name)} must be at least {least}.'
                )


def _length_of(replay: Any) -> int | None:
    """Steps per sequence of a replay that has a `length`."""
    length = getattr(replay, 'length', None)
    return length if isinstance(length, int) else None


def _convert(field: dataclasses.Field, value: Any) -> Any:
    """Value in the type of the field; numbers may come as 1e6 or as text."""
    try:
        if field.type is Path:
            return Path(value).expanduser()
        if field.type is int:
            number = float(value)
            if number != int(number):
                raise ValueError('not a whole number')
            return int(number)
        if field.type is bool and not isinstance(value, bool):
            raise ValueError('not True or False')
        assert isinstance(field.type, type), field
        return field.type(value)
    except (ValueError, TypeError, OverflowError) as error:
        kind = getattr(field.type, '__name__', field.type)
        raise ConfigError(
            f'{field.name}={value!r} must be of type {kind}: {error}.'
        ) from error
