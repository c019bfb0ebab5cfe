"""Shared memory: files in memory (slabs) that carry large arrays between processes.

The sender writes into a memfd and names it; the receiver opens it through
/proc/<pid>/fd and maps it read-only. There is no file that could be left behind: the
memory is freed with its last user. A slab is written again only when no array on it
is in use in any process: each receiver sends a release when its last view is collected.
"""

import collections
import fcntl
import mmap
import os
import secrets
import sys
import threading
import weakref
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from ..errors import MessageError
from .frames import INLINE, Place
from .schemas import LARGE

__all__ = ['Probe', 'SlabGone', 'SlabPool', 'SlabReader', 'supported']

PREFIX = 'dreamer-slab'
ALIGN = 64  # bytes; JAX aliases buffers aligned like this
SMALLEST = 1024 * 1024
MAX_SLABS = 256  # descriptors
MAX_MAPPED = 64  # mappings that a receiver keeps for reuse, per sender
PROBE_BYTES = 16
LOCAL = object()  # holder of slabs whose arrays live in the sending process


def supported() -> bool:
    """Whether this platform has sealed memory files."""
    return sys.platform == 'linux' and hasattr(os, 'memfd_create')


class SlabGone(MessageError):
    """The sender has ended, or given up the connection that a message came over."""


class Slab:
    """One memory file of the sender, and who uses arrays on it."""

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        self.size = size
        self.fd = os.memfd_create(PREFIX, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, size)
        self.memory = mmap.mmap(self.fd, size)
        # A shrinking file would kill its readers with SIGBUS.
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, seals)
        self.holders: collections.Counter[Hashable] = collections.Counter()

    def close(self) -> None:
        """Closes the descriptor; the memory is freed with the last array on it.

        The mapping stays open: arrays refer to it without holding its buffer, so it
        could be unmapped while they are in use.
        """
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __del__(self) -> None:
        self.close()


class SlabPool:
    """The slabs of one sender. Any thread may call any method."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._slabs: dict[int, Slab] = {}
        # By id() of the arrays under those of `empty`. The reference shows whether
        # the id still means the same array.
        self._roots: dict[int, tuple[weakref.ref[np.ndarray], Slab]] = {}
        self._count = INLINE
        # Finalizers may run inside `with self._lock`, so they only append to this.
        self._dead_roots: collections.deque[int] = collections.deque()

    def empty(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """An array that can be sent without a copy; ordinary when no slab is free."""
        dtype = np.dtype(dtype)
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        large = nbytes >= LARGE and supported()
        slab = self._take(nbytes, LOCAL) if large else None
        if slab is None:
            return np.empty(shape, dtype)
        root = np.ndarray((nbytes,), np.uint8, slab.memory)
        with self._lock:
            self._roots[id(root)] = (weakref.ref(root), slab)
        weakref.finalize(root, self._dead_roots.append, id(root)).atexit = False
        return np.ndarray(shape, dtype, root)

    def place(
        self, arrays: list[np.ndarray], holder: Hashable
    ) -> tuple[Place, ...] | None:
        """Puts arrays where `holder` can map them; None when no slab is free."""
        homes = [self._home(array) for array in arrays]
        total = sum(
            _padded(array.nbytes)
            for array, home in zip(arrays, homes, strict=True)
            if home is None
        )
        slab = self._take(total, holder) if total else None
        if total and slab is None:
            return None
        with self._lock:
            for lent in {id(home): home for home in homes if home}.values():
                lent.holders[holder] += 1
        places, offset = [], 0
        for array, home in zip(arrays, homes, strict=True):
            if home is not None:
                places.append(_place(home, _offset(array, home), array))
                continue
            assert slab is not None
            np.ndarray(array.shape, array.dtype, slab.memory, offset)[...] = array
            places.append(_place(slab, offset, array))
            offset += _padded(array.nbytes)
        return tuple(places)

    def release(self, number: int, holder: Hashable) -> None:
        """`holder` does not use the arrays of one message on this slab any more."""
        with self._lock:
            slab = self._slabs.get(number)
            if slab is not None and slab.holders[holder] > 0:
                slab.holders[holder] -= 1

    def drop(self, holder: Hashable) -> None:
        """Never reuses the slabs of a holder that is gone: it may still be reading."""
        with self._lock:
            for slab in list(self._slabs.values()):
                if slab.holders.pop(holder, 0):
                    del self._slabs[slab.number]

    def close(self) -> None:
        with self._lock:
            for slab in self._slabs.values():
                slab.close()
            self._slabs.clear()

    def _take(self, nbytes: int, holder: Hashable) -> Slab | None:
        with self._lock:
            self._collect()
            size = max(SMALLEST, 1 << (max(nbytes, 1) - 1).bit_length())
            idle = (s for s in self._slabs.values() if not s.holders.total())
            slab = next((s for s in idle if s.size == size), None)
            if slab is None:
                used = sum(slab.size for slab in self._slabs.values())
                if used + size > self._limit and not self._make_room(size, used):
                    return None
                if len(self._slabs) >= MAX_SLABS:
                    return None
                self._count += 1
                slab = self._slabs[self._count] = Slab(self._count, size)
            slab.holders[holder] += 1
            return slab

    def _make_room(self, size: int, used: int) -> bool:
        idle = [s for s in self._slabs.values() if not s.holders.total()]
        while idle and used + size > self._limit:
            used -= idle[-1].size
            del self._slabs[idle.pop().number]
        return used + size <= self._limit

    def _collect(self) -> None:
        while self._dead_roots:
            _, slab = self._roots.pop(self._dead_roots.popleft())
            slab.holders[LOCAL] -= 1

    def _home(self, array: np.ndarray) -> Slab | None:
        if not array.flags.c_contiguous:
            return None
        base: Any = array
        while isinstance(base, np.ndarray):
            root, slab = self._roots.get(id(base), (None, None))
            if root is not None and slab is not None and root() is base:
                return slab if slab.number in self._slabs else None
            base = base.base
        return None


class SlabReader:
    """The mapped slabs of one sender, in the receiving process."""

    def __init__(self, pid: int, release: Callable[[int], None]) -> None:
        self._pid = pid
        self._release = release
        self._maps: collections.OrderedDict[int, mmap.mmap] = collections.OrderedDict()

    def open(self, places: tuple[Place, ...], inline: list) -> list:
        """Buffers of all places, slabs mapped and inline frames as they are.

        One release follows for every slab, when its last view is gone.
        """
        frames = iter(inline)
        roots: dict[int, np.ndarray] = {}
        buffers = []
        for place in places:
            if place.slab == INLINE:
                buffers.append(next(frames))
                continue
            memory = self._map(place)
            if place.slab not in roots:
                roots[place.slab] = self._root(place.slab, memory)
            root = roots[place.slab]
            if place.offset + place.nbytes > len(root):
                raise MessageError('An array lies outside of its slab.')
            buffers.append(root[place.offset : place.offset + place.nbytes])
        return buffers

    def _root(self, number: int, memory: mmap.mmap) -> np.ndarray:
        root = np.ndarray((len(memory),), np.uint8, memory)
        weakref.finalize(root, self._release, number).atexit = False
        return root

    def _map(self, place: Place) -> mmap.mmap:
        memory = self._maps.get(place.slab)
        if memory is None:
            memory = self._maps[place.slab] = map_slab(self._pid, place.fd, place.size)
            if len(self._maps) > MAX_MAPPED:
                self._maps.popitem(last=False)
        else:
            self._maps.move_to_end(place.slab)
        return memory


class Probe:
    """A tiny slab by which the other end finds out whether it can map ours.

    To be on the same host is not enough: in another PID namespace, for another user or
    on another machine the same numbers mean other files.
    """

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(PROBE_BYTES)
        self._slab = Slab(INLINE, mmap.PAGESIZE)
        self._slab.memory[:PROBE_BYTES] = self._secret

    def close(self) -> None:
        self._slab.close()

    def describe(self) -> dict[str, Any]:
        """What the other end needs for `pid_if_mappable`."""
        return {'pid': os.getpid(), 'fd': self._slab.fd, 'secret': self._secret}

    @staticmethod
    def pid_if_mappable(description: Any) -> int | None:
        """The process id of the other end, if its probe can be read from here."""
        pid, fd = description.get('pid'), description.get('fd')
        if not isinstance(pid, int) or not isinstance(fd, int):
            raise MessageError('A probe without process and descriptor.')
        try:
            memory = map_slab(pid, fd, mmap.PAGESIZE)
        except MessageError:
            return None
        return pid if memory[:PROBE_BYTES] == description.get('secret') else None


def map_slab(pid: int, fd: int, size: int) -> mmap.mmap:
    """Maps a memory file of another process, after making sure that it is one."""
    path = f'/proc/{pid}/fd/{fd}'
    try:
        if not os.readlink(path).startswith(f'/memfd:{PREFIX}'):
            raise MessageError(f'{path} is not a slab.')
        own = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            sealed = fcntl.fcntl(own, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
            if not sealed or os.fstat(own).st_size != size or size <= 0:
                raise MessageError(f'{path} is not a sealed slab of {size} bytes.')
            return mmap.mmap(own, size, prot=mmap.PROT_READ)
        finally:
            os.close(own)
    except (FileNotFoundError, ProcessLookupError) as e:
        raise SlabGone(f'{path} is gone.') from e
    except OSError as e:
        raise MessageError(f'{path} cannot be mapped: {e}') from e


def _place(slab: Slab, offset: int, array: np.ndarray) -> Place:
    return Place(slab.number, slab.fd, slab.size, offset, array.nbytes)


def _offset(array: np.ndarray, slab: Slab) -> int:
    start = np.ndarray((1,), np.uint8, slab.memory)
    return array.ctypes.data - start.ctypes.data


def _padded(nbytes: int) -> int:
    return nbytes + -nbytes % ALIGN
