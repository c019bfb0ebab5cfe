"""Outgoing transitions: on their way to replay, in order and bounded in number."""

import collections
from typing import NamedTuple

from ....core import base
from ....transport import ClientInterface, Future

__all__ = ['Inserts', 'Progress']

UNANSWERED = 4  # batches on their way before acting waits for replay
METHODS: dict[base.Mode, str] = {'train': 'add_batch', 'eval': 'add_batch_eval'}


class Progress(NamedTuple):
    """What replay says about the run."""

    steps: int  # environment steps committed
    stop: bool  # whether these are enough


class Inserts:
    """Adds the transitions of one mode; waits when replay falls behind.

    That is how the rate limiter reaches acting: it answers when it wants more.
    """

    def __init__(self, replay: ClientInterface, mode: base.Mode):
        self._replay = replay
        self._method = METHODS[mode]
        self._unanswered: collections.deque[Future] = collections.deque()

    def add(
        self, steps: base.Batch, streams: base.Array, serials: base.Array
    ) -> Progress | None:
        """Sends rows [n, ...]; the newest answer to rows sent before, if any came."""
        args = steps, streams, serials
        self._unanswered.append(self._replay.call(self._method, *args))
        answer = None
        while self._unanswered and self._answered():
            answer = self._unanswered.popleft().result()
        return answer and Progress(int(answer['steps']), bool(answer['stop']))

    def _answered(self) -> bool:
        """Whether to take the oldest answer: if it is there or must be waited for."""
        return len(self._unanswered) > UNANSWERED or self._unanswered[0].done()
