"""Main of a child process, which runs one role.

    python -m embodied.run.parallel.supervision.child_main FD

The parent starts it with one end of a pipe and sends a RoleSpec. The role runs in the
main thread, which receives signals; the process ends when it returns. Its health and
what it raises go back through the pipe. Through it the parent also asks it to end and
tells where servers have moved to; when the parent's end closes, the parent is dead.
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

from ....processes.signals import Terminated
from ..address_book import address_book
from .failure import LAST_WORDS, Report
from .health import health
from .process import SHOW_STACKS, End

__all__ = ['main']

FAILED = 1  # exit code


def main() -> None:
    # Only the launcher reacts to Ctrl-C and to a closed terminal; it tells the agent,
    # and that one the others.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    fd = int(sys.argv[1])
    os.set_inheritable(fd, False)
    pipe = Connection(fd)
    try:
        order = pipe.recv()
    except EOFError:
        return
    if isinstance(order, End):
        return
    order.surroundings.adopt()
    os.environ.update(order.environ)
    address_book().update(order.places)
    # Also when a library does not let other threads run, which a hang may be.
    faulthandler.register(SHOW_STACKS, all_threads=True)
    sending = threading.Lock()
    for target, args in ((_obey, (pipe,)), (_send_heartbeats, (pipe, sending))):
        threading.Thread(target=target, args=args, daemon=True).start()
    logging.basicConfig(format='%(asctime)s %(name)s %(levelname)s %(message)s')
    try:
        role, arguments = cloudpickle.loads(order.call)
        role(*arguments)
        with contextlib.suppress(OSError), sending:
            pipe.send(health().heartbeat())  # which knows how the run ends
    except Terminated as error:
        error.deliver()
    except BaseException as error:  # noqa: BLE001 (the parent raises it)
        print(LAST_WORDS, file=sys.stderr)
        traceback.print_exception(error)
        with sending:
            pipe.send(Report.of(error))
        sys.exit(FAILED)


def _obey(parent: Connection) -> None:
    """Ends the role when the parent asks for it, this process and all that it started
    when the parent is gone; hears where servers have moved to."""
    try:
        while True:
            message = parent.recv()
            if isinstance(message, End):
                address_book().lose(message.gone)
                health().asked = message.reason
                _end()
            else:
                address_book().update(message)
    except (EOFError, OSError):
        os.killpg(os.getpid(), signal.SIGKILL)


def _end() -> None:
    """As SIGTERM would, if no library has blocked it or taken its handler."""
    if callable(signal.getsignal(signal.SIGTERM)):
        _thread.interrupt_main(signal.SIGTERM)
    else:  # nothing that could be saved yet
        os.kill(os.getpid(), signal.SIGTERM)


def _send_heartbeats(parent: Connection, sending: threading.Lock) -> None:
    while True:
        heartbeat = health().await_heartbeat()
        try:
            with sending:
                parent.send(heartbeat)
        except OSError:
            return  # The other thread ends the process.


if __name__ == '__main__':
    main()
