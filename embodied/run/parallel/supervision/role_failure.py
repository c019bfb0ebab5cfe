"""Role failure: why a process of a role has ended, and what the user is told."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ....core import errors
from ....processes.failure import Failure
from ....transport.errors import AddressInUse
from .role_logs import last_lines

__all__ = ['RoleFailure']

MAX_SUMMARY = 200  # characters


class RoleFailure(NamedTuple):
    """The end of one process of a role, unless it was a clean one."""

    role: str
    pid: int
    code: int  # exit code, negative for a signal
    log: Path
    failure: Failure | None = None  # the exception that ended it
    cause: str = ''  # what the supervisor knows about it
    raised: BaseException | None = None  # the exception itself, where it is known

    @property
    def final(self) -> bool:
        return self.failure is not None and self.failure.final

    @property
    def transient(self) -> bool:
        return self.failure is not None and self.failure.transient

    @property
    def address_in_use(self) -> bool:
        return self.failure is not None and self.failure.kind == AddressInUse.__name__

    @property
    def signature(self) -> str:
        """Equal for the same error at the same place; '' for a signal from outside,
        which is not expected to come again."""
        if self.failure:
            return f'{self.failure.kind} at {self.failure.place}'
        if self.code in (-signal.SIGKILL, -signal.SIGTERM) and not self.cause:
            return ''
        return self.summary

    @property
    def summary(self) -> str:
        """One line."""
        if self.failure:
            first, *_ = self.failure.message.splitlines() or ['']
            where = f'in the {self.failure.origin}' if self.failure.origin else ''
            return f'{where or self.failure.kind}: {first}'[:MAX_SUMMARY]
        if self.cause:
            return self.cause
        if self.code < 0:
            return f'killed by signal {-self.code} ({signal.strsignal(-self.code)})'
        return f'ended with exit code {self.code}'

    def error(self, note: str = '') -> BaseException:
        """The error to raise where the role was started."""
        if self.raised is not None:
            return self.raised
        if self.failure and self.address_in_use:
            return AddressInUse(self.failure.message, self.failure.address)
        if self.failure and self.failure.members:
            return errors.MembersError(self.failure.message, self.failure.members)
        own = self.failure.own_type if self.failure else None
        if self.failure and own and own.final:
            return own(self.failure.message)  # which says where and what
        return errors.RoleError('\n'.join(self._story(note)))

    def _story(self, note: str) -> Iterator[str]:
        log = self.log
        if self.failure and self.failure.origin:
            yield f'The {self.failure.origin} failed: {self.failure.message}'
            theirs = log.with_name(f'{self.failure.origin}{log.suffix}')
            log = theirs if theirs.exists() else log
        elif self.failure:
            yield f'The {self.role} failed: {self.failure.kind}: {self.failure.message}'
            if not self.failure.own:
                yield f'\n{self.failure.traceback}'
            if self.failure.hint:
                yield self.failure.hint
        else:
            yield f'The {self.role} (process {self.pid}) failed: {self.summary}.'
        if note:
            yield note
        yield f'{log} ends with:'
        yield from (f'  {line}' for line in last_lines(log))
