"""Worker process of one environment: `python -m embodied.envs.runtime.env_process FD`.

The parent starts it with one end of a pipe and sends a Setup, then requests; each
request gets one reply. When the parent hangs up, the environment is closed.
"""

import os
import pickle
import signal
import sys
from multiprocessing.connection import Connection

import cloudpickle

from .host import EnvHost, Failure

__all__ = ['main']


def main() -> None:
    # Only the parent reacts to stop signals, which a service manager sends to all
    # processes: it stops acting, saves and closes the workers.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Not ignored: programs that the environment starts would inherit that.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    fd = int(sys.argv[1])
    os.set_inheritable(fd, False)
    with Connection(fd) as pipe:
        try:
            setup = pipe.recv()
        except EOFError:
            return
        setup.surroundings.adopt()
        host = EnvHost(lambda: cloudpickle.loads(setup.factory)())
        while _serve(pipe, host):
            pass
        host.close()


def _serve(pipe: Connection, host: EnvHost) -> bool:
    """Answers one request; False if there is nobody to answer to."""
    try:
        request, args = pipe.recv()
    except (EOFError, ConnectionResetError):
        return False
    try:
        reply = pickle.dumps(host.answer(request, *args), pickle.HIGHEST_PROTOCOL)
    except BaseException as error:  # noqa: BLE001 (the parent raises it)
        reply = pickle.dumps(Failure.of(request, error))
    try:
        pipe.send_bytes(reply)
    except (BrokenPipeError, ConnectionResetError):
        return False
    return True


if __name__ == '__main__':
    main()
