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
    'inline_sizes',
    'unpack',
]

MAGIC = b'DP'
VERSION = 1
HEADER = struct.Struct('<2sBBBBHIIQQ')
COUNTS = struct.Struct('<BH')  # the part of it that `inline_sizes` needs
COUNTS_AT = 5
PLACE = struct.Struct('<IIQQQ')
ALIGN = 16  # of the data, so that arrays in it are aligned
PADDING = [bytes(-size % ALIGN) for size in range(ALIGN)]  # after so many bytes
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


LAST_KIND = Kind.ALL[-1]


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
    data: Any = ()  # the bytes that arrived, or pieces of those to be sent
    buffers: tuple = ()
    flags: int = 0
    mark: int = 0  # client: oldest unanswered request; server: its epoch

    def frames(self, flags: int = 0, mark: int = 0, number: int = 0) -> list:
        """What to send, with what is only known at the moment of sending."""
        _, own, method, rows, places, schema, data, buffers, _, _ = self
        header = HEADER.pack(
            MAGIC,
            VERSION,
            self.kind,
            flags,
            len(method),
            len(places),
            rows,
            len(schema),
            number or own,
            mark,
        )
        if not places:
            padding = PADDING[(HEADER.size + len(method) + len(schema)) % ALIGN]
            return [b''.join((header, method, schema, padding, *data))]
        packed = b''.join([PLACE.pack(*place) for place in places])
        size = HEADER.size + len(method) + len(packed) + len(schema)
        padding = PADDING[size % ALIGN]
        return [b''.join((header, method, packed, schema, padding, *data)), *buffers]

    @property
    def nbytes(self) -> int:
        """Bytes of a message that arrived, roughly."""
        return len(self.data) + (sum(map(len, self.buffers)) if self.buffers else 0)


def inline_sizes(head: bytes) -> list[int]:
    """Sizes of the frames after the first one, for wires that do not keep them apart.

    A first frame that makes no sense announces nothing; `unpack` will refuse it.
    """
    if len(head) < HEADER.size:
        return []
    length, count = COUNTS.unpack_from(head, COUNTS_AT)
    start = HEADER.size + length
    if not count or count > MAX_PLACES or start + count * PLACE.size > len(head):
        return []
    starts = range(start, start + count * PLACE.size, PLACE.size)
    places = [Place(*PLACE.unpack_from(head, start)) for start in starts]
    return [place.nbytes for place in places if place.slab == INLINE and place.nbytes]


def unpack(frames: list) -> Parcel:
    """Checks lengths and kinds; the schema is left to whoever needs the value."""
    head = frames[0]
    try:
        magic, version, kind, flags, length, count, rows, size, number, mark = (
            HEADER.unpack_from(head)
        )
    except struct.error as e:
        raise MessageError(f'Not a message of ours: {len(head)} bytes.') from e
    if magic != MAGIC or version != VERSION:
        raise MessageError(
            f'Not a message of protocol {VERSION}: {magic!r}, version {version}.'
        )
    offset = HEADER.size + length
    start = offset + count * PLACE.size
    ends = start + size
    if not 0 < kind <= LAST_KIND or count > MAX_PLACES or ends > len(head):
        raise MessageError('Broken header.')
    places: tuple[Place, ...] = ()
    buffers: tuple = ()
    if count or len(frames) > 1:
        starts = range(offset, start, PLACE.size)
        places = tuple([Place(*PLACE.unpack_from(head, at)) for at in starts])
        buffers = tuple(frames[1:])
        if len(buffers) != sum([place.slab == INLINE for place in places]):
            raise MessageError('The number of frames differs from the header.')
    method, schema = head[HEADER.size : offset], head[start:ends]
    data = memoryview(head)[ends + -ends % ALIGN :]
    return Parcel(
        kind, number, method, rows, places, schema, data, buffers, flags, mark
    )
