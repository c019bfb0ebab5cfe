"""Restarts: whether and when a role that has failed is started again."""

from ..role_failure import RoleFailure

__all__ = ['Restarts']

FIRST_DELAY = 0.25  # seconds before a restart; twice as long each time
LONGEST_DELAY = 30.0
SETTLED_SECONDS = 60.0  # after which the same error again is not a loop of errors


class Restarts:
    """Counts the failures of one role since it last did well.

    It did well if it made progress. The same error at the same place as before also
    needs some time in between: an environment that fails at its tenth step makes
    progress, but only to fail again.

    limit: restarts in a row without doing well.
    """

    def __init__(self, limit: int):
        self._limit = limit
        self._row = 0  # failures since it did well, the last one included
        self._signature = ''  # of the last failure
        self.total = 0

    def delay(self, failure: RoleFailure, progress: bool, seconds: float) -> float:
        """Seconds until the role is to be started again. It failed after `seconds`,
        with or without progress. Raises the failure if there is no use in it."""
        again = bool(failure.signature) and failure.signature == self._signature
        self._signature = failure.signature
        well = progress and (not again or seconds >= SETTLED_SECONDS)
        self._row = 1 if well else self._row + 1
        if failure.final or not self._limit:
            raise failure.error()
        if failure.address_in_use and not self.total and not progress:
            raise failure.error()  # It was taken before; another one may be chosen.
        if again and not progress and not failure.transient:
            raise failure.error('It failed in the same way when it was started again.')
        if self._row > self._limit:
            raise failure.error(
                f'It was started again {self._limit} times (run.max_restarts) '
                'without doing better.'
            )
        self.total += 1
        return min(LONGEST_DELAY, FIRST_DELAY * 2 ** (self._row - 1))
