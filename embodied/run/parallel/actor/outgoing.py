"""Outgoing transitions: sent to replay in order, few batches at a time."""

import collections
from typing import NamedTuple

from ....core import base
from ....transport import ClientInterface, Future

__all__ = ['Inserts', 'Progress']

UNANSWERED = 4  # batches without an answer before acting waits for replay
METHODS: dict[base.Mode, str] = {'train': 'add_batch', 'eval': 'add_batch_eval'}


class Progress(NamedTuple):
    """Answer of replay to transitions."""

    steps: int  # environment steps committed
    stop: bool  # whether run.steps is reached


class Inserts:
    """Adds the transitions of one mode; waits when replay falls behind.

    That is how the rate limiter holds up acting: replay answers when it lets rows in.
    """

    def __init__(self, replay: ClientInterface, mode: base.Mode):
        self._replay = replay
        self._method = METHODS[mode]
        self._unanswered: collections.deque[Future] = collections.deque()

    def add(
        self, steps: base.Batch, streams: base.Array, serials: base.Array
    ) -> Progress | None:
        """Sends rows [n, ...]. Returns the newest answer to earlier rows, if any."""
        args = steps, streams, serials
        self._unanswered.append(self._replay.call(self._method, *args))
        answer = None
        while self._unanswered and self._answered():
            answer = self._unanswered.popleft().result()
        return answer and Progress(int(answer['steps']), bool(answer['stop']))

    def _answered(self) -> bool:
        """Whether the oldest answer is there, or has to be waited for."""
        return len(self._unanswered) > UNANSWERED or self._unanswered[0].done()
