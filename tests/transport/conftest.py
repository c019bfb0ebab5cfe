"""Servers and clients over every wire, closed when a test ends.

Tests that take `backend` run over both of our wires and over portal, the others that
need an address over both of our wires.
"""

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from embodied import transport

CHILD = Path(__file__).with_name('child.py')
DEADLINE = 60.0  # seconds; only against tests that hang


HOSTS = {'unix': 'localhost', 'tcp': 'tcp://127.0.0.1', 'portal': 'localhost'}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marks = metafunc.definition.iter_markers('parametrize')
    given = any(mark.args[0] == 'way' for mark in marks)
    if 'way' in metafunc.fixturenames and not given:
        ways = HOSTS if 'backend' in metafunc.fixturenames else ('unix', 'tcp')
        metafunc.parametrize('way', ways)


@pytest.fixture
def backend(way: str) -> str:
    return 'portal' if way == 'portal' else 'native'


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture
def addr(way: str) -> str:
    return f'{HOSTS[way]}:{transport.free_port()}'


@pytest.fixture
def serve(stack: contextlib.ExitStack, addr: str) -> Callable[..., Any]:
    """Starts a server whose methods are given as keyword arguments."""

    def serve(
        *, transport_: str = 'native', options: Any = None, **methods: Any
    ) -> Any:
        server = transport.Server(addr, transport=transport_, **(options or {}))
        for name, bound in methods.items():
            if isinstance(bound, dict) and 'batch' in bound:
                server.bind_batched(name, **bound)
            elif isinstance(bound, dict):
                server.bind(name, **bound)
            else:
                server.bind(name, bound)
        return stack.enter_context(server)

    return serve


@pytest.fixture
def connect(stack: contextlib.ExitStack, addr: str) -> Callable[..., Any]:
    """Creates a client and waits for its connection."""

    def connect(wait: bool = True, **options: Any) -> Any:
        options = {'addr': addr, **options}
        client = stack.enter_context(transport.Client(**options))
        if wait:
            client.connect(DEADLINE)
        return client

    return connect


@pytest.fixture
def child(stack: contextlib.ExitStack) -> Callable[..., subprocess.Popen]:
    """Runs a role of child.py in a process of its own."""

    def child(role: str, *args: object) -> subprocess.Popen:
        command = [sys.executable, str(CHILD), role, *map(str, args)]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        stack.callback(end, process)
        return process

    return child


def end(process: subprocess.Popen) -> None:
    process.kill()
    process.wait()
    assert process.stdin and process.stdout
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    process.stdout.close()
