"""Frames on the wire: one fixed header, then what it announces.

frame 0   header | method | places of large arrays | schema | padding | data
frame 1.. large arrays that travel inline, in the order of their places
"""

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..errors import MessageError

__all__ = [
    'INLINE',
    'MAX_HEAD',
    'MAX_PLACES',
    'Content',
    'Kind',
    'Message',
    'Place',
    'REPEAT',
    'inline_sizes',
    'make_frames',
    'unpack',
]

VERSION = 1
MAGIC = b'DP' + bytes([VERSION])
HEADER = struct.Struct('<3sBBBHIIQQ')
HEADER_SIZE = HEADER.size
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
    """The kind of a message. Clients send the first row, servers the second."""

    OPEN, REQUEST, CLOSE, MAPPED = 1, 2, 3, 4
    CHALLENGE, ACCEPTED, REFUSED, UNKNOWN, REPLY, ERROR, PROBE = range(5, 12)
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


# A value ready to be sent: places of large arrays, schema, pieces of the data, and the
# frames after the first one. A plain tuple, since every call makes some.
Content = tuple[tuple[Place, ...], bytes, Sequence, tuple]


class Message(NamedTuple):
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
        """The frames to send, with fields that are only known when sending."""
        kind, own, method, rows, places, schema, data, buffers, _, _ = self
        content = places, schema, data, buffers
        return make_frames(kind, content, number or own, mark, flags, method, rows)


def make_frames(
    kind: int,
    content: Content,
    number: int,
    mark: int,
    flags: int = 0,
    method: bytes = b'',
    rows: int = 0,
) -> list:
    """The frames of a message with this content."""
    places, schema, data, buffers = content
    size = len(schema)
    header = HEADER.pack(
        MAGIC, kind, flags, len(method), len(places), rows, size, number, mark
    )
    size += HEADER_SIZE + len(method)
    if not places:
        return [b''.join((header, method, schema, PADDING[size % ALIGN], *data))]
    packed = b''.join([PLACE.pack(*place) for place in places])
    padding = PADDING[(size + len(packed)) % ALIGN]
    return [b''.join((header, method, packed, schema, padding, *data)), *buffers]


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


def unpack(frames: list) -> Message:
    """Checks lengths and kinds; the schema is checked by `unpack_value`."""
    head = frames[0]
    try:
        magic, kind, flags, length, count, rows, size, number, mark = (
            HEADER.unpack_from(head)
        )
    except struct.error as e:
        raise MessageError(f'Not a message of this protocol: {len(head)} bytes.') from e
    if magic != MAGIC:
        raise MessageError(f'Not a message of protocol {VERSION}: {magic!r}.')
    start = offset = HEADER_SIZE + length
    places: tuple[Place, ...] = ()
    buffers: tuple = ()
    if count or len(frames) > 1:
        start += count * PLACE.size
        places = _unpack_places(head, offset, start)
        buffers = tuple(frames[1:])
        if len(buffers) != sum([place.slab == INLINE for place in places]):
            raise MessageError('The number of frames differs from the header.')
    ends = start + size
    if not 0 < kind <= LAST_KIND or ends > len(head):
        raise MessageError('Broken header.')
    method, schema = head[HEADER_SIZE:offset], head[start:ends]
    data = memoryview(head)[ends + -ends % ALIGN :]
    fields = kind, number, method, rows, places, schema, data, buffers, flags, mark
    return tuple.__new__(Message, fields)  # twice as fast as to call the class


def _unpack_places(head: bytes, start: int, stop: int) -> tuple[Place, ...]:
    if stop > len(head) or stop - start > MAX_PLACES * PLACE.size:
        raise MessageError('Broken header.')
    starts = range(start, stop, PLACE.size)
    return tuple([Place(*PLACE.unpack_from(head, at)) for at in starts])
