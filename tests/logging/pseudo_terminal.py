"""A real terminal for programs that behave differently on one."""

import os
import pty
import subprocess
import sys

__all__ = ['run_in_terminal']


def run_in_terminal(args, **env):
    """Output of a Python whose stdout is a terminal of 80 columns."""
    main, child = pty.openpty()
    env = {**os.environ, 'TERM': 'xterm', 'COLUMNS': '80', **env}
    command = [sys.executable, *args]
    process = subprocess.Popen(command, stdout=child, stderr=child, env=env)
    os.close(child)
    chunks = []
    try:
        while chunk := os.read(main, 1 << 16):
            chunks.append(chunk)
    except OSError:  # how Linux says that the other end of a terminal is closed
        pass
    os.close(main)
    assert process.wait() == 0
    return b''.join(chunks).decode()
