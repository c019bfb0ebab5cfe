"""Call: a request of a client, kept until it is answered."""

import time

from .futures import Future, Waiter
from .wire import Parcel

__all__ = ['Call']


class Call(Future):
    """A request, until it is answered, and its answer."""

    deadline: float | None = None
    sent = False
    number = 0
    parcel: Parcel | None = None
    holder: object = None  # connection that the parcel was packed for

    def __init__(self, client: Waiter, method: bytes, args: tuple, rows: int) -> None:
        self._waiter = client
        self.method = method
        self.args = args
        self.rows = rows
        self.begun = time.monotonic()
