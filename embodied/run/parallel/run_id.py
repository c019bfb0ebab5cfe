"""Run id: a random name of the run in a folder, which its jobs compare.

    LOGDIR/run_id   32 hexadecimal digits

The process that owns the folder writes it before the first role starts. A resumed run
keeps it: environment jobs that outlive a restart of the run still belong to it. Jobs
that see the folder declare it in their handshake; jobs without the folder do not, and
are not compared.
"""

import os
import secrets
import sys
from pathlib import Path

from ...core.errors import ConfigError
from ...core.files import set_aside
from ...core.outside import LARGEST_OBJECT, read_plain
from ...logging import add_event

__all__ = ['create', 'read']

NAME = 'run_id'
ID_BYTES = 16


def create(logdir: Path) -> str:
    """The id of the run in the folder, which is made if there is none.

    A damaged file is set aside. Joining jobs with the old id are refused then.
    """
    try:
        if found := read(logdir):
            return found
    except ConfigError as error:
        kept = set_aside(logdir / NAME).name
        print(f'{error} It is kept as {kept}.', file=sys.stderr)
        details = {'file': str(logdir / NAME), 'kept': kept, 'reason': str(error)}
        add_event(logdir, 'damaged', **details)
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
        text = read_plain(path, LARGEST_OBJECT).decode(errors='replace').strip()
    except (FileNotFoundError, NotADirectoryError):
        return ''
    except OSError as error:
        raise ConfigError(f'{path} cannot be read: {error.strerror}.') from error
    if len(text) != 2 * ID_BYTES or not all(c in '0123456789abcdef' for c in text):
        raise ConfigError(
            f'{path} is damaged: it does not hold {2 * ID_BYTES} hexadecimal digits. '
            'The run gets a new one when it starts again.'
        )
    return text
