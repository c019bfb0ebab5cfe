"""Main of a child process, which runs one role.

    python -m embodied.run.parallel.supervision.child_main FD

The parent starts it with one end of a pipe and sends a RoleSpec. The role is called
with its arguments and the keyword `health`, the Health of this process. It runs in the
main thread, which receives signals; the process ends when it returns. Heartbeats and
what it raises go back through the pipe. Through it the parent also asks it to end; when
the parent's end closes, the parent is dead.
"""

import _thread
import contextlib
import faulthandler
import logging
import os
import signal
import sys
import threading
import traceback
from multiprocessing.connection import Connection

import cloudpickle

from ....processes.child_processes import connect_parent
from ....processes.failure import Failure
from ....processes.signals import Terminated
from .health import Health
from .process import SHOW_STACKS, End, RoleSpec
from .role_logs import FAILURE_LINE

__all__ = ['main']

FAILED = 1  # exit code


def main() -> None:
    pipe, spec = connect_parent()
    if not isinstance(spec, RoleSpec):
        return  # The parent is gone, or asks for the end already.
    spec.surroundings.adopt()
    os.environ.update(spec.environ)
    # By a handler in C, which also runs when a library holds the GIL for ever.
    faulthandler.register(SHOW_STACKS, all_threads=True)
    health, sending = Health(), threading.Lock()
    sender = _send_heartbeats, (pipe, health, sending)
    for target, args in ((_obey, (pipe, health)), sender):
        threading.Thread(target=target, args=args, daemon=True).start()
    logging.basicConfig(format='%(asctime)s %(name)s %(levelname)s %(message)s')
    try:
        role, arguments = cloudpickle.loads(spec.call)
        role(*arguments, health=health)
        with contextlib.suppress(OSError), sending:
            pipe.send(health.heartbeat())  # which knows how the run ends
    except Terminated as error:
        error.deliver()
    except BaseException as error:  # noqa: BLE001 (the parent raises it)
        print(FAILURE_LINE, file=sys.stderr)
        traceback.print_exception(error)
        with sending:
            pipe.send(Failure.of(error))
        sys.exit(FAILED)


def _obey(parent: Connection, health: Health) -> None:
    """Ends the role when the parent asks for it, and this process with all that it has
    started when the parent is gone."""
    try:
        while True:
            message = parent.recv()
            assert isinstance(message, End)
            health.ask_to_end(message.reason, message.gone)
            _end()
    except (EOFError, OSError):
        os.killpg(os.getpid(), signal.SIGKILL)


def _end() -> None:
    """As SIGTERM would, if no library has blocked it or taken its handler."""
    if callable(signal.getsignal(signal.SIGTERM)):
        _thread.interrupt_main(signal.SIGTERM)
    else:  # nothing that could be saved yet
        os.kill(os.getpid(), signal.SIGTERM)


def _send_heartbeats(
    parent: Connection, health: Health, sending: threading.Lock
) -> None:
    while True:
        heartbeat = health.await_heartbeat()
        try:
            with sending:
                parent.send(heartbeat)
        except OSError:
            return  # The other thread ends the process.


if __name__ == '__main__':
    main()
