"""Settings of the loops: reads, checks and completes the `args` that they are given."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...core.checkpoint import RUN_SUBFOLDER
from ...core.errors import ConfigError

__all__ = ['Settings']

POSITIVE = (
    'envs',
    'eval_eps',
    'eval_every',
    'batch_size',
    'batch_length',
    'report_length',
    'consec_train',
    'consec_report',
    'report_batches',
    'keep',
    'film_frames',
)
NOT_NEGATIVE = ('steps', 'duration', 'replay_context', 'eval_envs', 'film_every')


@dataclasses.dataclass(frozen=True)
class Settings:
    """Options of one run. Fields without a default must be given.

    The fields with a default are beyond the interface that other scripts know; this
    is the only place that completes them. Comments are in dreamerv3/configs.yaml.
    """

    logdir: Path
    steps: int
    duration: float
    train_ratio: float
    envs: int
    eval_envs: int
    eval_eps: int
    batch_size: int
    batch_length: int
    report_length: int
    consec_train: int
    consec_report: int
    replay_context: int
    log_every: float
    report_every: float
    report_batches: int
    save_every: float
    from_checkpoint: str
    from_checkpoint_regex: str
    debug: bool
    eval_every: int = 10_000
    env_processes: bool = True
    keep: int = 1
    film_every: float = 60.0
    film_frames: int = 300
    trust: bool = False

    @classmethod
    def read(cls, args: Mapping[str, Any]) -> 'Settings':
        """From an `elements.Config` or a dict, which may hold other keys, too."""
        fields = dataclasses.fields(cls)
        missing = [
            f.name
            for f in fields
            if f.default is dataclasses.MISSING and f.name not in args
        ]
        if missing:
            raise ConfigError(
                f'The args of the loop lack {", ".join(missing)}. They hold the '
                "options of 'run' in dreamerv3/configs.yaml plus logdir, batch_size, "
                'batch_length, report_length, consec_train, consec_report and '
                'replay_context.'
            )
        given = {f.name: _convert(f, args[f.name]) for f in fields if f.name in args}
        settings = cls(**given)
        settings._check()
        return settings

    @property
    def checkpoints(self) -> Path:
        return self.logdir / RUN_SUBFOLDER

    @property
    def batch_steps(self) -> int:
        """Replayed steps per update."""
        return self.batch_size * self.batch_length

    @property
    def minimum(self) -> int:
        """Steps in the replay before training: one batch of whole sequences, and a
        whole sequence from each environment, since these advance together."""
        length = self.consec_train * self.batch_length + self.replay_context
        return max(self.batch_size, self.envs) * length

    @property
    def eval_minimum(self) -> int:
        """Steps in the eval replay that give each environment a whole sequence."""
        length = self.consec_report * self.report_length + self.replay_context
        return self.eval_envs * length

    @property
    def parallel(self) -> bool:
        """Whether environments run in processes of their own."""
        return self.env_processes and not self.debug

    def _smallest(self) -> dict[str, float]:
        """Smallest value of each bounded field."""
        return {**dict.fromkeys(POSITIVE, 1), **dict.fromkeys(NOT_NEGATIVE, 0)}

    def _check(self) -> None:
        for name, least in self._smallest().items():
            if getattr(self, name) < least:
                raise ConfigError(
                    f'{name}={getattr(self, name)} must be at least {least}.'
                )


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
