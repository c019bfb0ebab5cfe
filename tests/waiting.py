"""Waiting of tests for what other processes do, without looking again and again."""

import os
import select
import socket

SECONDS = 30  # until a process that should end counts as hanging


def await_end(pid: int) -> None:
    """Blocks until a process has ended, which need not be our child."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    ended = poll.poll(1000 * SECONDS)
    os.close(fd)
    assert ended, f'process {pid} did not end'


def await_hang_up(sock: socket.socket) -> bool:
    """Blocks until the server closes the connection, after what it may have said."""
    try:
        while sock.recv(2**16):
            pass
    except ConnectionError:
        pass
    return True
