"""Failure: an exception in a form that every process can read.

Processes that run for others, an environment or a role, send it home. It says where the
exception comes from, what the user can do, and whether it helps to try again.
"""

import errno
import traceback
from collections.abc import Iterator
from types import TracebackType
from typing import Any, NamedTuple

from ..core import errors
from ..core.files import FULL

__all__ = ['Failure']

MAX_TEXT = 10_000  # characters of a text, so that a failure always fits into a pipe

OWN_PACKAGES = ('embodied', 'dreamerv3')

# XLA raises RuntimeErrors of one type for all that can go wrong; only the text says
# that the device has no memory left, which another process may still hold.
NO_DEVICE_MEMORY = ('RESOURCE_EXHAUSTED', 'CUDA_ERROR_OUT_OF_MEMORY')

HINTS = {
    errno.ENOSPC: 'The disk is full: make room, then the same command goes on.',
    errno.EDQUOT: 'Your disk quota is used up: make room, then the same command '
    'goes on.',
    errno.EMFILE: 'Too many open files: raise the limit with `ulimit -n`, or use '
    'fewer environments per process.',
    errno.ENFILE: 'The machine has too many open files.',
    errno.ENOMEM: 'The machine is out of memory.',
}


class Failure(NamedTuple):
    kind: str  # name of the type
    message: str
    traceback: str = ''  # from the outermost line that is not ours
    place: str = ''  # innermost line of code
    own: bool = False  # a DreamerError, whose message says all there is to say
    final: bool = False  # of no use to try again before the user has done something
    transient: bool = False  # goes away by itself
    errno: int | None = None  # of the OSError that caused it
    origin: str = ''  # the server whose handler raised it, if another process has it
    address: str = ''  # that is in use, if this is why
    members: int = 0  # of a vector environment that was planned with others

    @classmethod
    def of(cls, error: BaseException) -> 'Failure':
        chain = list(_causes(error))
        numbers = [n for e in chain if (n := _number(e)) is not None]
        known = (n for n in numbers if n in HINTS or n in FULL)
        own = error if isinstance(error, errors.DreamerError) else None
        ours = own or errors.DreamerError()
        final = ours.final or any(n in FULL for n in numbers)
        text = traceback.format_exception(
            type(error), error, _foreign_frames(error.__traceback__)
        )
        return cls(
            kind=type(error).__name__,
            message=_message(error)[:MAX_TEXT],
            traceback=''.join(text)[-MAX_TEXT:],
            place=_place(chain[-1]),
            own=own is not None,
            final=final,
            transient=not final and (ours.transient or _is_transient(chain)),
            errno=next(known, next(iter(numbers), None)),
            origin=ours.origin,
            address=getattr(ours, 'address', ''),
            members=getattr(ours, 'members', 0),
        )

    @property
    def own_type(self) -> type[errors.DreamerError] | None:
        """The type of one of our errors, which can be made of the message alone."""
        return getattr(errors, self.kind) if self.kind in errors.__all__ else None

    @property
    def hint(self) -> str:
        """What the user can do about it; '' if that is not known."""
        return HINTS.get(self.errno, '') if self.errno is not None else ''

    def attach(self, error: errors.DreamerError) -> errors.DreamerError:
        """Lets an error stand for this one, also where a failure is made of it."""
        error.final, error.transient = self.final, self.transient
        error.errno, error.place = self.errno, self.place
        return error


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, what caused it, and so on."""
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__ or current.__context__


def _number(error: BaseException) -> int | None:
    return error.errno if isinstance(error, (OSError, errors.DreamerError)) else None


def _is_transient(chain: list[BaseException]) -> bool:
    if isinstance(chain[0], ConnectionError):
        return True
    texts = [str(error) for error in chain if isinstance(error, RuntimeError)]
    return any(word in text for text in texts for word in NO_DEVICE_MEMORY)


def _message(error: BaseException) -> str:
    return error.brief if isinstance(error, errors.DreamerError) else str(error)


def _place(error: BaseException) -> str:
    if isinstance(error, errors.DreamerError) and error.place:
        return error.place
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
