"""Call: a request of a client, kept until it is answered."""

import time

from .futures import Future, Waiter
from .wire import Content

__all__ = ['Call']


class Call(Future):
    """A request, until it is answered, and its answer."""

    deadline: float | None = None
    sent = False
    number = 0
    content: Content | None = None
    holder: object = None  # connection that the content was prepared for

    def __init__(self, client: Waiter, method: bytes, args: tuple, rows: int) -> None:
        self._waiter = client
        self.method = method
        self.args = args
        self.rows = rows
        self.begun = time.monotonic()
