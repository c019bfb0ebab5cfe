"""Connections of the dashboard: bounded in number, and in the time that they may take.

A connection that sends no whole request in time is closed, even if bytes arrive, and so
is one that does not read the response.
"""

import asyncio
import socket
import struct
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ['Connection']

MOST = 256  # connections at a time
REQUEST_WITHIN = 5.0  # seconds from the connection, or the last answer, to a request
READ_WITHIN = 30.0  # seconds in which a reader must take something
NO_LINGER = struct.pack('ii', 1, 0)


class Connection(H11Protocol):
    """uvicorn's connection with deadlines."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._waiting: asyncio.TimerHandle | None = None  # for a request
        self._reading: asyncio.TimerHandle | None = None  # of an answer, by the peer

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._await_request()
        open_ones = [x for x in self.connections if not x.transport.is_closing()]
        if len(open_ones) > MOST:
            self._oldest(open_ones).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self.resume_writing()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        self._await_request()
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._reading is None:
            self._reading = self.loop.call_later(READ_WITHIN, self._reset)

    def resume_writing(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        super().resume_writing()

    def _await_request(self) -> None:
        self._stop_waiting()
        if not self.transport.is_closing():
            self._waiting = self.loop.call_later(REQUEST_WITHIN, self._give_up)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        """Closes; what the peer has not read of the last response may still leave."""
        self.transport.close()
        self._waiting = self.loop.call_later(READ_WITHIN, self._reset)

    def _reset(self) -> None:
        """Ends the connection at once, with all that the kernel still keeps for it."""
        if sock := self.transport.get_extra_info('socket'):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
        self.transport.abort()

    def _oldest(self, connections: list[Any]) -> 'Connection':
        """The connection that waits for a request for the longest time, or this."""
        waiting = [x for x in connections if x._waiting is not None]
        return min(waiting, key=lambda x: x._waiting.when(), default=self)
