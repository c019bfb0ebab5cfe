"""Worker process of one environment: `python -m embodied.envs.runtime.env_process FD`.

The parent starts it with one end of a pipe and sends a Setup, then requests; each
request gets one reply. When the parent hangs up, the environment is closed.
"""

import os
import pickle
import signal
from multiprocessing.connection import Connection

import cloudpickle

from ...processes.child_processes import connect_parent
from ...processes.failure import Failure
from .host import EnvHost

__all__ = ['main']


def main() -> None:
    # Only the parent reacts to SIGTERM, which a service manager sends to all processes:
    # it stops acting, saves and closes the workers. The signal is not ignored, because
    # programs that the environment starts would inherit that.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    pipe, setup = connect_parent()
    with pipe:
        if setup is None:
            return
        setup.surroundings.adopt()
        # The accelerator is the agent's.
        os.environ.setdefault('JAX_PLATFORMS', 'cpu')
        host = EnvHost(lambda: cloudpickle.loads(setup.factory)())
        while _serve(pipe, host):
            pass
        host.close()


def _serve(pipe: Connection, host: EnvHost) -> bool:
    """Answers one request; False if the parent is gone."""
    try:
        request, args = pipe.recv()
    except (EOFError, ConnectionResetError):
        return False
    try:
        reply = pickle.dumps(host.answer(request, *args), pickle.HIGHEST_PROTOCOL)
    except BaseException as error:  # noqa: BLE001 (the parent raises it)
        reply = pickle.dumps(Failure.of(error))
    try:
        pipe.send_bytes(reply)
    except (BrokenPipeError, ConnectionResetError):
        return False
    return True


if __name__ == '__main__':
    main()
