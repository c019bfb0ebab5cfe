"""Frames on the wire: one fixed header, then what it announces.

frame 0   header | method | places of large arrays | schema | padding | data
frame 1.. large arrays that travel inline, in the order of their places
"""

import struct
from typing import Any, NamedTuple

from .errors import MessageError

__all__ = [
    'INLINE',
    'MAX_HEAD',
    'MAX_PLACES',
    'Kind',
    'Parcel',
    'Place',
    'REPEAT',
    'unpack',
]

MAGIC = b'DP'
VERSION = 1
HEADER = struct.Struct('<2sBBBBHIIQQ')
PLACE = struct.Struct('<IIQQQ')
ALIGN = 16  # of the data, so that arrays in it are aligned
MAX_PLACES = 4096
MAX_HEAD = 2 * 1024 * 1024  # bytes of the first frame before the data
REPEAT = 1  # flag: this request was sent before and may have been served
INLINE = 0  # slab number of an array that travels in a frame of its own


class Kind:
    """What a frame is for. Clients send the first row, servers the second."""

    HELLO, REQUEST, BYE, MAPPED = 1, 2, 3, 4
    CHALLENGE, WELCOME, REFUSED, UNKNOWN, REPLY, ERROR, PROBE = range(5, 12)
    RELEASE = 12  # both: the slab with this number is no longer used here
    ALL = range(1, 13)


class Place(NamedTuple):
    """Where a large array is: in the next inline frame, or in a slab."""

    slab: int
    fd: int
    size: int  # of the slab
    offset: int
    nbytes: int


class Parcel(NamedTuple):
    """A message. `buffers` are the inline frames after the first one."""

    kind: int
    number: int = 0  # of the request, or of the slab
    method: bytes = b''
    rows: int = 0  # of a batched call; 0 means one row without a batch dimension
    places: tuple[Place, ...] = ()
    schema: bytes = b'N'
    data: Any = b''
    buffers: tuple = ()
    flags: int = 0
    mark: int = 0  # client: oldest unanswered request; server: its epoch

    def frames(self, flags: int = 0, mark: int = 0, number: int = 0) -> list:
        """What to send, with what is only known at the moment of sending."""
        header = HEADER.pack(
            MAGIC,
            VERSION,
            self.kind,
            flags,
            len(self.method),
            len(self.places),
            self.rows,
            len(self.schema),
            number or self.number,
            mark,
        )
        places = [PLACE.pack(*place) for place in self.places]
        head = b''.join((header, self.method, *places, self.schema))
        return [b''.join((head, bytes(-len(head) % ALIGN), self.data)), *self.buffers]

    @property
    def nbytes(self) -> int:
        """Bytes on the wire, roughly."""
        return len(self.data) + sum([len(buffer) for buffer in self.buffers])


def unpack(frames: list) -> Parcel:
    """Checks lengths and kinds; the schema is left to whoever needs the value."""
    head = frames[0]
    try:
        magic, version, kind, flags, length, count, rows, schema, *rest = (
            HEADER.unpack_from(head)
        )
    except struct.error as e:
        raise MessageError(f'Not a message of ours: {len(head)} bytes.') from e
    if magic != MAGIC or version != VERSION:
        raise MessageError(
            f'Not a message of protocol {VERSION}: {magic!r}, version {version}.'
        )
    offset = HEADER.size + length
    ends = offset + count * PLACE.size + schema
    if kind not in Kind.ALL or count > MAX_PLACES or ends > len(head):
        raise MessageError('Broken header.')
    method = head[HEADER.size : offset]
    places: tuple[Place, ...] = ()
    if count:
        starts = range(offset, offset + count * PLACE.size, PLACE.size)
        places = tuple(Place(*PLACE.unpack_from(head, start)) for start in starts)
    inline = [place for place in places if place.slab == INLINE]
    if len(frames) != 1 + len(inline):
        raise MessageError('The number of frames differs from the header.')
    number, mark = rest
    data = memoryview(head)[ends + -ends % ALIGN :]
    return Parcel(
        kind,
        number,
        method,
        rows,
        places,
        head[ends - schema : ends],
        data,
        tuple(frames[1:]),
        flags,
        mark,
    )
