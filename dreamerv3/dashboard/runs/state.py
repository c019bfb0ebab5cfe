"""State of a run: the one in its files, unless the process that wrote them is gone.

`status.json` is written by the launcher of a distributed run; other runs leave only
events. Both name a process; without it the run is dead, whatever its files say.
"""

import time
from pathlib import Path
from typing import Any

import psutil

from embodied.processes.process_identity import ProcessIdentity, uptime

from .run_files import last_lines, read_object

__all__ = ['read_events', 'run_state']

EVENT_BYTES = 1 << 18  # newest part of events.jsonl that is read
MOST_EVENTS = 500
SILENT_AFTER = 20.0  # seconds without a heartbeat
# States at the end; 'done' is of roles, and of runs that version 0.1.0 has written.
OVER = ('finished', 'stopped', 'killed', 'failed', 'done')
STATES = ('starting', 'running', 'waiting', 'restarting', *OVER)
# Of a run whose process is gone, writes nothing, or cannot be seen from here.
DEAD, SILENT, UNKNOWN = 'dead', 'silent', 'unknown'


def read_events(folder: Path) -> list[dict[str, Any]]:
    """The newest events, oldest first."""
    return last_lines(folder / 'events.jsonl', EVENT_BYTES)[-MOST_EVENTS:]


def run_state(folder: Path, events: list[dict[str, Any]]) -> dict[str, Any]:
    """State, reason of its end, roles, restarts and the last error of a run."""
    status = read_object(folder / 'status.json')
    if status is None:
        state, reason = _from_events(events)
        nothing = {'roles': {}, 'restarts': 0, 'error': ''}
        return {'state': state, 'reason': reason, **nothing}
    state = _verdict(status)
    roles = _roles(status.get('roles'), gone=state in (DEAD, *OVER))
    return {
        'state': state,
        'reason': str(status.get('reason') or ''),
        'roles': roles,
        'restarts': sum(role['restarts'] for role in roles.values()),
        'error': str(status.get('error') or ''),
    }


def _verdict(status: dict[str, Any]) -> str:
    state = _known(status.get('state'))
    if state in OVER:
        return state
    try:
        writer = ProcessIdentity.read(status)
    except (TypeError, ValueError, OverflowError):
        return UNKNOWN
    alive = writer.alive
    if alive is False:
        return DEAD
    if alive and writer.boot == ProcessIdentity.of().boot:
        age = uptime() - _number(status.get('uptime'))
    else:
        age = time.time() - _number(status.get('heartbeat'))
    if age > SILENT_AFTER:
        return SILENT if alive else UNKNOWN
    return state


def _roles(roles: Any, gone: bool) -> dict[str, dict[str, Any]]:
    """Roles by name; with a launcher that is gone, all of its roles are dead."""
    if not isinstance(roles, dict):
        return {}
    found = {}
    for name, role in roles.items():
        if isinstance(role, dict):
            state, restarts = (
                _known(role.get('state')),
                int(_number(role.get('restarts'))),
            )
            if state == 'starting' and restarts:
                state = 'restarting'  # until it runs
            if gone and state not in OVER:
                state = DEAD
            found[name] = {
                'state': state,
                'activity': str(role.get('doing') or role.get('activity') or ''),
                'pid': int(_number(role.get('pid'))),
                'restarts': restarts,
                'error': str(role.get('error') or ''),
            }
    return found


def _from_events(events: list[dict[str, Any]]) -> tuple[str, str]:
    """State and reason of a run in a single process, which writes no status."""
    for event in reversed(events):
        match event.get('event'):
            case 'stop':
                reason = str(event.get('reason') or '')
                before = 'done' if reason == 'done' else 'failed'  # version 0.1.0
                return _known(event.get('state', before)), reason
            case 'start' | 'resume':
                return _process_state(event), ''
    return UNKNOWN, ''


def _process_state(event: dict[str, Any]) -> str:
    host, pid = event.get('host'), int(_number(event.get('pid')))
    if host != ProcessIdentity.of().host:
        return UNKNOWN
    try:
        # A process that began later is another one that was given the same number.
        begun = psutil.Process(pid).create_time() <= _number(event.get('time')) + 1
    except (psutil.Error, ValueError, OverflowError):
        return DEAD
    return 'running' if begun else DEAD


def _known(state: Any) -> str:
    return state if state in STATES else UNKNOWN


def _number(value: Any) -> float:
    return float(value) if type(value) in (int, float) and abs(value) < 1e15 else 0.0
