"""Hardened socket: portal's server socket without some of its faults.

Large replies go out at once, connections that end during the handshake are closed, and
those that stay silent, too.
"""

import selectors
import socket
import time
from collections.abc import Callable
from typing import Any

from portal import server_socket

__all__ = ['Gone', 'HardenedSocket']

MAX_PENDING = 512  # connections without a handshake; the oldest is closed


class Gone:
    """Event: a connection has ended."""

    def __init__(self, addr: tuple) -> None:
        self.addr = addr


class HardenedSocket(server_socket.ServerSocket):
    """Also puts `Gone` into its queue for every connection that has ended.

    patience: seconds that a connection has for its handshake, and that may pass in the
    middle of a message without any of it arriving.
    """

    def __init__(self, *args: Any, patience: float, **options: Any) -> None:
        self._patience = patience
        self._late: dict[Any, float] = {}  # unfinished connections, and until when
        super().__init__(*args, **options)

    def _loop(self) -> None:
        self.sel: Any = PatientSelector(self.sel, self.conns, self._drop_late)
        super()._loop()
        self.recvq.put(None)  # so that the server notices the end

    def _accept(self, sock: socket.socket) -> None:
        before = set(self.conns)
        super()._accept(sock)
        for addr in self.conns.keys() - before:
            self._late[self.conns[addr]] = time.monotonic() + self._patience
        size = len(self.handshake)
        pending = [x for x in self._late if len(x.handshake) < size]
        if len(pending) > MAX_PENDING:
            self._disconnect(pending[0], TimeoutError())

    def _drop_late(self) -> None:
        now = time.monotonic()
        for conn in [conn for conn, due in self._late.items() if due <= now]:
            self._disconnect(conn, TimeoutError())

    def _handshake(self, conn: Any) -> None:
        # Portal takes the end of a connection for a pause and spins.
        if not conn.sock.recv(1, socket.MSG_PEEK):
            self._disconnect(conn, ConnectionResetError())
        else:
            super()._handshake(conn)

    def _recv(self, conn: Any) -> None:
        try:
            super()._recv(conn)
        except AssertionError as e:  # Lengths beyond the limit end portal's thread.
            self._disconnect(conn, e)
            return
        if len(conn.handshake) < len(self.handshake) or conn.addr not in self.conns:
            return
        if conn.recvbuf and (conn.recvbuf.lenbuf or conn.recvbuf.buffer):
            self._late[conn] = time.monotonic() + self._patience
        else:
            self._late.pop(conn, None)

    def _disconnect(self, conn: Any, e: Exception) -> None:
        self._late.pop(conn, None)
        super()._disconnect(conn, e)
        self.recvq.put(Gone(conn.addr))


class PatientSelector:
    """Also wakes when a connection with unsent bytes becomes writable.

    Portal waits for readable sockets only, so each piece of a large reply would wait
    for the next request or a timeout. before: called whenever portal waits, which it
    does five times per second at least.
    """

    def __init__(
        self, inner: selectors.BaseSelector, conns: dict, before: Callable[[], None]
    ) -> None:
        self._inner = inner
        self._conns = conns
        self._before = before
        self._writing: set = set()
        self.register = inner.register
        self.close = inner.close

    def unregister(self, sock: socket.socket) -> None:
        self._writing.discard(sock)
        self._inner.unregister(sock)

    def select(self, timeout: float | None) -> list:
        self._before()
        for conn in list(self._conns.values()):
            unsent = bool(conn.sendbufs)
            if unsent != (conn.sock in self._writing):
                events = selectors.EVENT_READ | (selectors.EVENT_WRITE if unsent else 0)
                self._inner.modify(conn.sock, events, data=conn)
                (self._writing.add if unsent else self._writing.discard)(conn.sock)
        return self._inner.select(timeout)
