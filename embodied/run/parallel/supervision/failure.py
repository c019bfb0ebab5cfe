"""Failures: why a role has ended, whether to try again, and what the user is told."""

import errno
import os
import signal
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from ....core import errors
from ....transport.errors import (
    AddressInUse,
    Disconnected,
    Refused,
    RemoteError,
    Timeout,
)

__all__ = ['FIRST_WORDS', 'LAST_WORDS', 'Failure', 'Report']

LAST_LINES = 10  # of a log that are shown when a role has failed for good
LAST_BYTES = 1 << 16
FIRST_WORDS = '--- The role starts'  # in its log, for each process
LAST_WORDS = 'The role fails:'  # in its log, above an error that we know of already
MAX_SUMMARY = 200  # characters
MAX_TRACEBACK = 10_000  # characters, so that a report always fits into the pipe

OWN_PACKAGES = ('embodied', 'dreamerv3')

# What trying again cannot mend, because the user has to do something first.
FINAL = (errors.ConfigError, errors.CheckpointError, errors.StorageError, Refused)
# Whose message says where and what, so that the log of the role adds nothing.
PLAIN = (errors.ConfigError, errors.CheckpointError, errors.StorageError)
FINAL_NUMBERS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
FINAL_WORDS = tuple(map(os.strerror, FINAL_NUMBERS))  # in errors of other processes

# What another process has left behind or has not done yet; it goes away by itself.
TRANSIENT = (
    AddressInUse,
    Disconnected,
    Timeout,
    ConnectionError,
    errors.FolderInUseError,  # by a role on a machine that is not quite dead yet
)
TRANSIENT_WORDS = ('RESOURCE_EXHAUSTED', 'CUDA_ERROR_OUT_OF_MEMORY')

HINTS = {
    errno.ENOSPC: 'The disk is full: make room, then the same command goes on.',
    errno.EDQUOT: 'Your disk quota is used up: make room, then the same command '
    'goes on.',
    errno.EMFILE: 'Too many open files: raise the limit with `ulimit -n`, or use '
    'fewer environments per process.',
    errno.ENFILE: 'The machine has too many open files.',
    errno.ENOMEM: 'The machine is out of memory.',
}


class Report(NamedTuple):
    """The exception that ended a role, in a form that every process can read."""

    kind: str
    message: str
    traceback: str  # from the outermost line that is not ours
    place: str  # innermost line of code
    own: bool  # a DreamerError, whose message says all there is to say
    final: bool
    transient: bool
    hint: str = ''
    origin: str = ''  # the server whose handler raised it, if another process has it

    @classmethod
    def of(cls, error: BaseException) -> 'Report':
        chain = list(_causes(error))
        numbers = [e.errno for e in chain if isinstance(e, OSError)]
        says = lambda words: any(word in str(e) for e in chain for word in words)
        final = isinstance(error, FINAL) or says(FINAL_WORDS)
        final = final or any(number in FINAL_NUMBERS for number in numbers)
        transient = isinstance(error, TRANSIENT) or says(TRANSIENT_WORDS)
        frames = _foreign_frames(error.__traceback__)
        text = ''.join(traceback.format_exception(type(error), error, frames))
        return cls(
            kind=type(error).__name__,
            message=_message(error)[:MAX_TRACEBACK],
            traceback=text[-MAX_TRACEBACK:],
            place=_place(chain[-1]),
            own=isinstance(error, errors.DreamerError),
            final=final,
            transient=transient and not final,
            hint=next((HINTS[n] for n in numbers if n in HINTS), ''),
            origin=error.server if isinstance(error, RemoteError) else '',
        )


class Failure(NamedTuple):
    """One death of a role."""

    role: str
    pid: int
    code: int  # exit code, negative for a signal
    log: Path
    report: Report | None = None
    cause: str = ''  # what the supervisor knows about it

    @property
    def final(self) -> bool:
        return self.report is not None and self.report.final

    @property
    def transient(self) -> bool:
        return self.report is not None and self.report.transient

    @property
    def address_in_use(self) -> bool:
        return self.report is not None and self.report.kind == AddressInUse.__name__

    @property
    def mark(self) -> str:
        """The same for the same error at the same place; '' if others may have done
        it, who are not expected to do it again."""
        if self.report:
            return f'{self.report.kind} at {self.report.place}'
        if self.code in (-signal.SIGKILL, -signal.SIGTERM) and not self.cause:
            return ''
        return self.summary

    @property
    def summary(self) -> str:
        """One line."""
        if self.report:
            first, *_ = self.report.message.splitlines() or ['']
            where = f'in the {self.report.origin}' if self.report.origin else ''
            return f'{where or self.report.kind}: {first}'[:MAX_SUMMARY]
        if self.cause:
            return self.cause
        if self.code < 0:
            return f'killed by signal {-self.code} ({signal.strsignal(-self.code)})'
        return f'ended with exit code {self.code}'

    def error(self, note: str = '') -> errors.DreamerError:
        """The error to raise where the role was started."""
        report = self.report
        if report and self.address_in_use:
            return AddressInUse(report.message)
        if report:
            own = getattr(errors, report.kind, None)
            if own is not None and issubclass(own, PLAIN):
                return own(report.message)
        return errors.RoleError('\n'.join(self._story(note)))

    def _story(self, note: str) -> Iterator[str]:
        log = self.log
        if self.report and self.report.origin:
            yield f'The {self.report.origin} failed: {self.report.message}'
            theirs = log.with_name(f'{self.report.origin}{log.suffix}')
            log = theirs if theirs.exists() else log
        elif self.report:
            yield f'The {self.role} failed: {self.report.kind}: {self.report.message}'
            if not self.report.own:
                yield f'\n{self.report.traceback}'
            if self.report.hint:
                yield self.report.hint
        else:
            yield f'The {self.role} (process {self.pid}) failed: {self.summary}.'
        if note:
            yield note
        yield f'{log} ends with:'
        yield from (f'  {line}' for line in _last_lines(log))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, what caused it, and so on."""
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__ or current.__context__


def _message(error: BaseException) -> str:
    """Without the stack of another process where it would say nothing more."""
    if isinstance(error, RemoteError) and hasattr(errors, error.kind):
        return error.args[0]
    return str(error)


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return 'unknown'
    return f'{frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}'


def _foreign_frames(frames: TracebackType | None) -> TracebackType | None:
    """The traceback without our own outermost frames, unless that is all of it."""
    inner = frames
    while inner and _is_own(inner.tb_frame.f_globals):
        inner = inner.tb_next
    return inner or frames


def _is_own(names: dict[str, Any]) -> bool:
    # Not by the name of the module, which may be __main__ for us and for the user.
    return (names.get('__package__') or '').partition('.')[0] in OWN_PACKAGES


def _last_lines(log: Path) -> list[str]:
    try:
        with log.open('rb') as file:
            file.seek(max(0, log.stat().st_size - LAST_BYTES))
            text = file.read().decode(errors='replace')
    except OSError as error:
        return [f'(unreadable: {error.strerror})']
    _, begins, own = text.rpartition(FIRST_WORDS)  # of the last process
    own = own.partition('\n')[2] if begins else text
    before, known, _ = own.rpartition(f'{LAST_WORDS}\n')
    lines = (before if known else own).splitlines()
    return lines[-LAST_LINES:] or ['(nothing but the error)' if known else '(nothing)']
