"""Ownership: whether this user, on this machine, was the last to write a file.

What a file says of its origin proves nothing. The kernel tells three things that the
author of an archive cannot choose: who owns a file, its inode number, and when it was
last changed (ctime, which no call sets). A file whose fingerprint was noted when it
was written and is still the same was neither copied nor unpacked nor replaced.
"""

import os
import stat
from pathlib import Path
from typing import Any

__all__ = ['fingerprint', 'is_private', 'is_unchanged']


def fingerprint(file: int | str | os.PathLike) -> list[int]:
    """Inode number and time of the last change of a file or descriptor."""
    found = os.stat(file)
    return [found.st_ino, found.st_ctime_ns]


def is_unchanged(path: Path, expected: Any) -> bool:
    """Whether a file is the one whose `fingerprint` was noted."""
    try:
        return fingerprint(path) == expected
    except OSError:
        return False


def is_private(*paths: Path) -> bool:
    """Whether these files and folders are this user's and other users cannot write
    to them; links are not followed."""
    return all(map(_is_private, paths))


def _is_private(path: Path) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    shared = found.st_mode & stat.S_IWOTH or (
        # Many systems give each user a group, and let it write by default.
        found.st_mode & stat.S_IWGRP and found.st_gid != os.getegid()
    )
    link = stat.S_ISLNK(found.st_mode)
    return found.st_uid == os.geteuid() and not shared and not link
