"""Roles: which part of a distributed run a process belongs to."""

import psutil

from embodied.processes import lineage

__all__ = ['role_of']


def role_of(process: psutil.Process) -> str:
    """Role of a process, as env0, also if the role has only started it; '' for the
    launcher and its guard. Raises psutil.NoSuchProcess.

    By the tag `run.role.number.` that the launcher gives to a role (supervisor.py).
    """
    tag = process.environ().get(lineage.TAG, '')
    _, _, role = tag.rpartition('.')[0].partition('.')
    return role.rpartition('.')[0]
