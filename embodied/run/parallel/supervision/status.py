"""Status of a run: a small file that says what its processes do.

    status.json  {"state": "running", "reason": "", "activity": "", "host": ...,
                  "boot": ..., "pid": ..., "started": ..., "epoch": ...,
                  "heartbeat": ..., "uptime": ..., "lineage": ..., "error": "",
                  "folder": {"path": ..., "device": ..., "inode": ...},
                  "roles": {"agent": {"state": "running", ...}, ...}}

The launcher replaces it with every change and every few seconds. A launcher that was
killed cannot write that it is gone, so readers look for its process, and distrust old
heartbeats.
"""

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ....core.errors import ConfigError
from ....core.files import is_full, overwrite, why_unreadable, write_whole
from ....core.outside import LARGEST_OBJECT as LARGEST
from ....core.outside import read_plain, shown
from ....processes.process_identity import FolderIdentity, ProcessIdentity, uptime
from ...shared.outcome import OVER

__all__ = ['HEARTBEAT', 'OVER', 'SILENT_AFTER', 'Status', 'StatusFile', 'main']

NAME = 'status.json'
HEARTBEAT = 2.0  # seconds between two writes at most
SILENT_AFTER = 10 * HEARTBEAT  # without a write, a living launcher must be suspended

DEAD, SILENT, UNKNOWN = 'dead', 'silent', 'unknown'
UNREADABLE = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,  # nested a million times
)


class StatusFile:
    """Writes the status of this process."""

    def __init__(self, logdir: Path, epoch: int):
        self.path = logdir / NAME
        folder = {'path': str(logdir.resolve()), **FolderIdentity.of(logdir)._asdict()}
        writer = ProcessIdentity.of()._asdict()
        self._base = {**writer, 'epoch': epoch, 'folder': folder}

    def write(
        self,
        state: str,
        roles: Mapping[str, Mapping[str, Any]],
        activity: str = '',
        reason: str = '',
        lineage: str = '',
        error: str = '',
    ) -> None:
        record = {
            'state': state,
            'reason': reason,  # for which it ends
            'activity': activity,
            **self._base,
            'heartbeat': round(time.time(), 3),
            'uptime': round(uptime(), 3),
            'lineage': lineage,
            'error': error,
            'roles': roles,
        }
        text = json.dumps(record, indent=2)
        try:
            write_whole(self.path, text)
        except OSError as error:
            if state not in OVER or not is_full(error):
                raise
            overwrite(self.path, text)  # It must not go on saying that it runs.


class Status(NamedTuple):
    """What a reader may believe."""

    state: str  # as written, or DEAD, SILENT or UNKNOWN where that cannot be true
    age: float  # seconds since the last heartbeat
    record: dict[str, Any]

    @property
    def over(self) -> bool:
        """Whether the launcher has said how the run ended."""
        return self.state in OVER

    @staticmethod
    def exists(logdir: str | os.PathLike) -> bool:
        return (Path(logdir) / NAME).exists()

    @classmethod
    def read(cls, logdir: str | os.PathLike) -> 'Status':
        path = Path(logdir).expanduser() / NAME
        try:
            record = json.loads(read_plain(path, LARGEST))
            _check(record)
            age = _age(record)
        except FileNotFoundError:
            raise ConfigError(
                f'There is no {path}: give the --logdir of a distributed run.'
            ) from None
        except UNREADABLE as error:
            raise ConfigError(
                f'{path} cannot be read: {why_unreadable(error)}. The next start of '
                'the run writes it again.'
            ) from error
        writer = ProcessIdentity.read(record)
        return cls(_verdict(record['state'], writer, age), age, record)


def main(argv: Sequence[str]) -> int:
    """Prints the status of the run in a folder: `dreamer status LOGDIR`."""
    if len(argv) != 1 or argv[0].startswith('-'):
        print('usage: dreamer status LOGDIR')
        return 0 if argv in (['--help'], ['-h']) else 2
    status = Status(*map(_shown, Status.read(argv[0])))
    print('\n'.join(_lines(status)))
    return 0


def _age(record: Mapping[str, Any]) -> float:
    """Seconds since the last heartbeat."""
    writer = ProcessIdentity.read(dict(record))
    if writer.local and writer.boot == ProcessIdentity.of().boot:
        return uptime() - record['uptime']
    return time.time() - record['heartbeat']


def _verdict(state: str, writer: ProcessIdentity, age: float) -> str:
    if state in OVER:
        return state
    alive = writer.alive
    if alive is False:
        return DEAD
    if age > SILENT_AFTER:
        return UNKNOWN if alive is None else SILENT
    return state


def _check(record: Any) -> None:
    """Raises if something is missing, or of another type than a launcher writes."""
    texts = dict.fromkeys(('state', 'activity', 'error'), str)
    lineage = {'lineage': str}
    numbers = dict.fromkeys(('pid', 'epoch', 'uptime', 'heartbeat'), int | float)
    _check_fields(record, {**texts, **numbers, **lineage, 'host': str, 'roles': dict})
    for role in record['roles'].values():
        _check_fields(role, {**texts, 'restarts': int, 'pid': int | None})


def _check_fields(record: Any, fields: dict[str, Any]) -> None:
    for name, kind in fields.items():
        if not isinstance(record[name], kind):
            raise TypeError(f'{name} is {shown(repr(record[name]))}')


def _shown(value: Any, keep: str = '') -> Any:
    """The value with texts that a terminal may print, in one line except for errors."""
    if isinstance(value, dict):
        return {
            shown(key, ''): _shown(inner, '\n\t' if key == 'error' else '')
            for key, inner in value.items()
        }
    return shown(value, keep) if isinstance(value, str) else value


def _lines(status: Status) -> list[str]:
    record = status.record
    meaning = {
        DEAD: ': its launcher was killed; the same command goes on',
        SILENT: ': its launcher is suspended or stuck',
        UNKNOWN: ': on another machine, and not heard of for long',
    }
    details = filter(None, (record['activity'], record.get('reason')))
    activity = ''.join(f' ({detail})' for detail in details)
    lines = [
        f'{status.state}{activity}{meaning.get(status.state, "")}',
        f'launcher: process {record["pid"]} on {record["host"]}, last heartbeat '
        f'{status.age:.0f} s ago, session {record["epoch"]}',
    ]
    gone = status.state in (DEAD, *OVER)
    for name, role in record['roles'].items():
        state = role['state'] if not gone or role['state'] in OVER else 'gone'
        doing = '' if gone else role.get('doing') or role['activity']
        facts = [f'{state} ({doing})' if doing else state]
        facts += [f'on {role["hardware"]}'] if role.get('hardware') else []
        facts += [f'{role["restarts"]} restarts']
        where = f' on {role["node"]}' if role.get('node') else ''
        facts += [f'process {role["pid"]}{where}'] if role['pid'] and not gone else []
        facts += [f'last error: {role["error"]}'] if role['error'] else []
        lines.append(f'  {name:10} {", ".join(facts)}')
    if record['error']:
        lines += ['', record['error']]
    return lines
