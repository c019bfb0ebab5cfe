"""Log callback: a function of the user that sees every log, and may stop the run."""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from ...core.errors import ConfigError
from ...logging.logger import Entry, scalars
from ...processes.signals import Terminated

__all__ = ['REASON', 'LogCallback', 'OnLog', 'StopRun']

# Takes the environment step and the numbers of one log by name; True stops the run.
OnLog: TypeAlias = Callable[[int, dict[str, float]], bool | None]

REASON = 'on_log'  # of a run that its callback stops


class StopRun(Exception):
    """Raised by a log callback: ends the run cleanly, with a last save.

    reason: follows `on_log` in the records of the run.
    """

    def __init__(self, reason: str = '') -> None:
        super().__init__(reason)


class LogCallback:
    """Logger output that calls `on_log`, and the context in which it may be called.

    stop: called with the reason when the function asks for the end of the run. It is
    not called again then. What it raises is raised at the end of the context, after
    the last save.
    """

    def __init__(self, on_log: OnLog | None, stop: Callable[[str], Any]) -> None:
        self._on_log = on_log
        self._stop = stop
        self._error: Exception | SystemExit | None = None
        self._over = on_log is None

    def join(self, logger: Any) -> None:
        """Becomes an output of the logger, if there is a function to call."""
        if self._over:
            return
        if not isinstance(getattr(logger, 'outputs', None), list):
            raise ConfigError(
                f'on_log needs a logger with a list of `outputs`, as that of embodied '
                f'and that of elements; {type(logger).__name__} has none.'
            )
        logger.outputs.append(self)

    def __call__(self, entries: Sequence[Entry]) -> None:
        if self._over:
            return
        assert self._on_log
        step = max(int(step) for step, _, _ in entries)
        reason = REASON
        try:
            if not _stops(self._on_log(step, _numbers(entries))):
                return
        except StopRun as end:
            reason = f'{REASON}: {end}' if str(end) else REASON
        except Terminated:
            raise  # a second signal, which does not wait for a save
        except (Exception, SystemExit) as error:  # noqa: BLE001 (raised at the end)
            self._error = error
        self._over = True
        self._stop(reason)

    def __enter__(self) -> 'LogCallback':
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._over = True
        if self._error is None:
            return
        if error is None:
            raise self._error
        first = f'{type(self._error).__name__}: {self._error}'
        error.add_note(f'Before that, on_log raised {first}')


def _stops(answer: Any) -> bool:
    """Whether what the function returned asks for the end of the run."""
    if answer is None or isinstance(answer, bool | np.bool_):
        return bool(answer)
    raise ConfigError(
        f'on_log returned {answer!r}. It returns True to stop the run, and False or '
        'None to go on.'
    )


def _numbers(entries: Sequence[Entry]) -> dict[str, float]:
    """As in metrics.jsonl, where what is not finite is null, which is NaN here."""
    found = scalars(entries)
    return {k: v if math.isfinite(v) else math.nan for k, v in found.items()}
