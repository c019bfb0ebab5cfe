"""Stream: lists of frames over a connected Unix socket, without ever blocking.

    size of the first frame, 4 bytes | first frame | large arrays that travel inline

The first frame says how long the others are, see `codec/frames.py`. Every size is
checked before memory is allocated for it.
"""

import collections
import socket
import struct

from ..codec.frames import HEADER, inline_sizes
from ..errors import MessageError

__all__ = ['SCRATCH', 'Stream']

SIZE = struct.Struct('<I')
SIZE_BYTES = SIZE.size
SCRATCH = 256 * 1024  # bytes read at once; smaller messages need one system call
SMALLEST = SIZE_BYTES + HEADER.size
START = struct.Struct('<I6xH')  # the size, and the number of large arrays
MOST_PIECES = 512  # of one system call, the kernel takes 1024


class Stream:
    """One end of a connection. One thread at a time sends, one receives."""

    def __init__(self, sock: socket.socket, limit: int, total: int) -> None:
        sock.setblocking(False)
        self.fd = sock.fileno()
        self.limit = limit  # bytes of one frame that may arrive
        self.total = total  # bytes of all large arrays of a message
        self.unsent = 0  # bytes that did not fit into the socket yet
        self._sock = sock
        self._backlog: collections.deque[memoryview] = collections.deque()
        self._start = b''  # of a size, when only a part of it has arrived
        self._frames: list = []  # of the message that is arriving
        self._sizes: list[int] = []  # of its frames that are to come, last one first
        self._piece: bytearray | None = None  # the frame that is arriving
        self._filled = 0

    def send(self, frames: list) -> bool:
        """Sends or keeps frames for `flush`; False if the connection is lost."""
        size = len(frames[0])
        pieces = [SIZE.pack(size), *frames]
        sent = 0
        if not self.unsent and len(pieces) <= MOST_PIECES:
            try:
                sent = self._sock.sendmsg(pieces)
            except BlockingIOError:
                sent = 0
            except OSError:
                return False
        if sent != SIZE_BYTES + size or len(pieces) > 2:
            self._keep(pieces, sent)
        return True

    def flush(self) -> bool:
        """Sends more of what was kept; False if the connection is lost."""
        while self._backlog:
            pieces = [*self._backlog][:MOST_PIECES]
            try:
                sent = self._sock.sendmsg(pieces)
            except BlockingIOError:
                return True
            except OSError:
                return False
            self.unsent -= sent
            while self._backlog and sent >= len(self._backlog[0]):
                sent -= len(self._backlog.popleft())
            if sent:
                self._backlog[0] = self._backlog[0][sent:]
        return True

    def receive(self, scratch: memoryview) -> list[list]:
        """Reads once; returns the messages that are complete now.

        EOFError if the connection is lost, BlockingIOError if nothing has arrived, and
        MessageError if the stream cannot be read any further.
        """
        if self._frames or self._start or self._piece is not None:
            return self._receive_rest(scratch)
        count = self._read(scratch)
        if count >= SMALLEST:
            size, places = START.unpack_from(scratch)
            if size == count - SIZE_BYTES and not places:
                return [[bytes(scratch[SIZE_BYTES:count])]]  # the usual case
        messages: list[list] = []
        self._parse(scratch[:count], messages)
        return messages

    def close(self) -> None:
        self._sock.close()
        self._backlog.clear()
        self._piece = None
        self._frames = []
        self.unsent = 0

    def shut_down(self) -> None:
        """Ends the connection for both ends, whose `receive` then raises EOFError."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # The other end was faster.

    def _keep(self, pieces: list, sent: int) -> None:
        for piece in pieces:
            rest = memoryview(piece)[min(sent, len(piece)) :]
            sent = max(0, sent - len(piece))
            if len(rest):
                self._backlog.append(rest)
                self.unsent += len(rest)

    def _receive_rest(self, scratch: memoryview) -> list[list]:
        """Goes on in the middle of a message."""
        messages: list[list] = []
        if self._sizes and self._piece is None:
            self._piece, self._filled = bytearray(self._sizes.pop()), 0
        piece = self._piece
        if piece is None:
            count = self._read(scratch)
            self._parse(scratch[:count], messages)
        else:
            self._filled += self._read(memoryview(piece)[self._filled :])
            if self._filled == len(piece):
                self._piece = None
                self._complete(piece, messages)
        return messages

    def _read(self, target: memoryview) -> int:
        try:
            count = self._sock.recv_into(target)
        except BlockingIOError:
            raise
        except OSError as e:
            raise EOFError from e
        if not count:
            raise EOFError
        return count

    def _parse(self, data: memoryview, messages: list[list]) -> None:
        if self._start:
            data = memoryview(self._start + data)
            self._start = b''
        at, end = 0, len(data)
        while at < end:
            if self._sizes:
                size = self._sizes.pop()
            elif end - at < SIZE_BYTES:
                self._start = bytes(data[at:])
                return
            else:
                (size,) = SIZE.unpack_from(data, at)
                at += SIZE_BYTES
                if size > self.limit:
                    raise MessageError(f'A frame of {size} bytes is announced.')
            if end - at >= size:
                self._complete(data[at : at + size], messages)
                at += size
            else:
                self._piece = bytearray(size)
                self._filled = end - at
                self._piece[: end - at] = data[at:]
                return

    def _complete(self, piece: memoryview | bytearray, messages: list[list]) -> None:
        """Adds a whole frame to the message that is arriving."""
        if not self._frames:
            head = bytes(piece)
            self._sizes = inline_sizes(head)[::-1]
            largest, total = max(self._sizes, default=0), sum(self._sizes)
            if largest > self.limit or total > self.total:
                raise MessageError(f'Arrays of {total} bytes are announced.')
            self._frames = [head]
        elif isinstance(piece, bytearray):
            self._frames.append(memoryview(piece).toreadonly())
        else:
            self._frames.append(memoryview(bytes(piece)))
        if not self._sizes:
            messages.append(self._frames)
            self._frames = []
