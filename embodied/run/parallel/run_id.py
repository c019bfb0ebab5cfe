"""Run id: a random name of the run in a folder, by which its jobs know each other.

    LOGDIR/run_id   32 hexadecimal digits

The process that owns the folder writes it before the first role starts. A resumed run
keeps it: environment jobs that outlive a restart of the run still belong to it. Jobs
that see the folder declare it in their handshake; jobs without the folder do not, and
are not compared.
"""

import os
import secrets
from pathlib import Path

from ...core.errors import ConfigError

__all__ = ['create', 'read']

NAME = 'run_id'
ID_BYTES = 16


def create(logdir: Path) -> str:
    """The id of the run in the folder, which is new if there was none."""
    if found := read(logdir):
        return found
    logdir.mkdir(parents=True, exist_ok=True)
    temporary = logdir / f'.{NAME}-{secrets.token_hex(ID_BYTES)}'
    temporary.write_text(secrets.token_hex(ID_BYTES) + '\n')
    try:
        # Unlike a rename, this keeps what another process has written meanwhile.
        os.link(temporary, logdir / NAME)
    except FileExistsError:
        pass
    finally:
        temporary.unlink()
    return read(logdir)


def read(logdir: Path) -> str:
    """The id of the run in the folder; '' if it has none."""
    path = logdir / NAME
    try:
        text = path.read_text().strip()
    except (FileNotFoundError, NotADirectoryError):
        return ''
    if len(text) != 2 * ID_BYTES or not all(c in '0123456789abcdef' for c in text):
        raise ConfigError(
            f'{path} is damaged: it holds {text[:80]!r} instead of {2 * ID_BYTES} '
            'hexadecimal digits. Remove it, then the run gets a new one when it starts.'
        )
    return text
