"""Roles that tests run as processes of their own, to be killed or stopped."""

import os
import sys

import numpy as np

from embodied import transport

DEADLINE = 60.0


def server(addr: str, backend: str = 'native', patience: str = '10') -> None:
    """Echoes, and counts in this process how often each value was seen."""
    seen: dict[int, int] = {}

    def count(x):
        seen[int(x)] = seen.get(int(x), 0) + 1
        (request,) = transport.current_requests()
        return {'x': x, 'times': seen[int(x)], 'repeat': request.repeat}

    settings = transport.Settings(patience=float(patience))
    serving = transport.Server(addr, transport=backend, settings=settings)
    serving.bind('echo', lambda x: x)
    serving.bind('count', count)
    serving.bind('once', count, once=True)
    serving.bind('pid', os.getpid)
    serving.bind('posted', lambda x: (x, None), lambda _: print('posted', flush=True))
    serving.bind_batched('rows', lambda x: 2 * x, batch=4)
    serving.start(block=False)
    print('ready', flush=True)
    serving.wait()


def client(addr: str, method: str, size: str, backend: str = 'native') -> None:
    """Calls a method with arrays for ever, or until it is killed."""
    array = np.zeros(int(size), np.uint8)
    calling = transport.Client(addr, transport=backend)
    calling.connect(DEADLINE)
    print('ready', flush=True)
    while True:
        calling.call(method, array).result(DEADLINE)


def hold(addr: str, size: str) -> None:
    """Asks for a large array and keeps it until a line comes in."""
    with transport.Client(addr) as calling:
        array = calling.call('make', int(size)).result(DEADLINE)
        print(int(array[0]), flush=True)
        sys.stdin.readline()
        print(int(array[0]), flush=True)


def interrupted(addr: str) -> None:
    """Waits for an answer that never comes; SIGINT must end it."""
    with transport.Client(addr) as calling:
        calling.connect(DEADLINE)
        future = calling.call('stuck')
        try:
            print('ready', flush=True)
            future.result()
        except KeyboardInterrupt:
            print('interrupted', flush=True)


if __name__ == '__main__':
    globals()[sys.argv[1]](*sys.argv[2:])
