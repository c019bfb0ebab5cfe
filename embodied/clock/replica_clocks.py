"""Replica clocks: replicas ask a server, which answers when all of them have asked."""

import atexit
import threading
from pathlib import Path
from typing import Any, NamedTuple

from embodied import transport
from embodied.core.errors import ConfigError, RoleError
from embodied.transport import addresses
from embodied.transport.keys import Keys
from embodied.transport.keys import load as load_keys

from .local_clock import LocalClock
from .replica_timeouts import CLOCK_ANSWERS, CLOCK_ASKED, REPLICAS_START

__all__ = ['ReplicaClocks', 'SharedClock', 'current', 'setup']

# `GlobalClock(every)` takes no connection: the process has one, which `setup` opens.
_current: 'ReplicaClocks | None' = None


def setup(
    is_server: bool,
    replica: int,
    replicas: int,
    port: int | str,
    addr: str,
    keys: str | Path = '',
) -> None:
    """Lets every `GlobalClock` that this process makes from now on agree with others.

    is_server: whether this process serves the clocks, as one of the replicas does.
    port: where it listens; 0 or '' takes the port of `addr`.
    addr: host:port of the server, the same for all replicas.
    keys: folder with the keys of the run, which an address on the network needs.

    Blocks until the server answers. Does nothing with one replica.
    """
    global _current
    if replicas <= 1:
        return
    if not 0 <= replica < replicas:
        raise ConfigError(
            f'replica={replica} must be between 0 and {replicas - 1} (replicas='
            f'{replicas}).'
        )
    if _current is not None:
        _current.close()
    _current = None
    clocks = ReplicaClocks(replica, replicas, addr, keys)
    atexit.register(clocks.close)  # after the last answers have left
    if is_server:
        clocks.serve(int(port or 0))
    clocks.connect()
    _current = clocks


def current() -> 'ReplicaClocks | None':
    """The connection of this process, if `setup` has opened one."""
    return _current


class ReplicaClocks:
    """Connection of one replica to the server of the clocks, with the server if it is
    in this process."""

    def __init__(self, replica: int, replicas: int, addr: str, keys: str | Path = ''):
        self._replica = replica
        self._replicas = replicas
        self._addr = addresses.parse(addr)
        self._keys = Keys() if self._addr.loopback else load_keys(keys)
        self._identity = transport.Identity(shared={'replicas': replicas})
        self._made = 0
        self._server: transport.ServerInterface | None = None
        self._client = transport.Client(
            addr, f'replica{replica}', identity=self._identity, keys=self._keys.client
        )

    def serve(self, port: int = 0) -> None:
        """Starts the server in this process."""
        host = 'localhost' if self._addr.loopback else '0.0.0.0'
        self._server = transport.Server(
            f'{host}:{port or self._addr.port}',
            'clocks',
            identity=self._identity,
            keys=self._keys.server,
        )
        ask = Meeting(self._replicas).ask
        self._server.bind('ask', ask, workers=self._replicas, once=True)
        self._server.start(block=False)

    def connect(self) -> None:
        try:
            self._client.connect(REPLICAS_START)
        except transport.Timeout as error:
            raise RoleError(
                f'Replica {self._replica} does not reach the clocks of the replicas '
                f'at {self._addr.text} (clock_addr) within {REPLICAS_START} s. '
                'Start replica 0, at an address that all can reach.'
            ) from error

    def make(self, every: float, first: bool) -> 'SharedClock':
        """The next clock; all replicas make the same ones in the same order."""
        self._made += 1
        return SharedClock(self, self._made, every, first)

    def ask(self, question: 'Question', skip: bool) -> bool:
        """The answer, when all replicas have asked."""
        answer = self._client.call('ask', self._replica, list(question), skip)
        try:
            return answer.result(CLOCK_ANSWERS)
        except transport.RemoteError as error:
            raise RoleError(error.reason) from error
        except transport.Timeout as error:
            raise RoleError(
                f'The clocks of the replicas at {self._addr.text} do not answer. Start '
                'all replicas again.'
            ) from error

    def close(self) -> None:
        self._client.close()
        if self._server is not None:
            self._server.close()


class Question(NamedTuple):
    """Whether a clock is due; the same for all replicas."""

    clock: int
    call: int
    every: float
    first: bool

    def __str__(self) -> str:
        return f'call {self.call} of clock {self.clock} (every {self.every:g} s)'


class SharedClock:
    """A clock that asks the server, unless it is never due."""

    def __init__(self, clocks: ReplicaClocks, number: int, every: float, first: bool):
        self._clocks = clocks
        self._question = Question(number, 0, float(every), bool(first))

    def __call__(self, step: Any = None, skip: bool | None = None) -> bool:
        if not self._question.every:
            return False
        self._question = self._question._replace(call=self._question.call + 1)
        return self._clocks.ask(self._question, bool(skip))


class Meeting:
    """Collects the question of each replica and gives all of them one answer.

    A replica that asks another question than the others has been restarted or runs
    another program. That is an error of all, since their updates would not fit, and so
    is a replica that asks nothing for `patience` seconds.
    """

    def __init__(self, replicas: int, patience: float = CLOCK_ASKED):
        self._replicas = replicas
        self._patience = patience
        self._change = threading.Condition()
        self._clocks: dict[int, LocalClock] = {}
        self._asked: dict[int, tuple[Question, bool]] = {}
        self._round = 0
        self._answer = False
        self._error = ''

    def ask(self, replica: int, question: Any, skip: bool) -> bool:
        """Blocks until all replicas have asked the same."""
        with self._change:
            mine = self._round
            self._asked[replica] = Question(*question), skip
            if len(self._asked) == self._replicas:
                self._decide()
            else:
                self._await_others(mine)
            if self._error:
                raise RoleError(self._error)
            return self._answer

    def _decide(self) -> None:
        questions = {replica: asked for replica, (asked, _) in self._asked.items()}
        if len(set(questions.values())) > 1:
            each = ', '.join(f'{i}: {x}' for i, x in sorted(questions.items()))
            self._fail(f'The replicas ask for different clocks ({each}).')
            return
        question = questions.popitem()[1]
        clock = self._clocks.setdefault(
            question.clock, LocalClock(question.every, question.first)
        )
        self._answer = clock(skip=any(skip for _, skip in self._asked.values()))
        self._asked = {}
        self._round += 1
        self._change.notify_all()

    def _await_others(self, mine: int) -> None:
        over = lambda: self._round > mine or self._error
        if not self._change.wait_for(over, self._patience):
            missing = sorted(set(range(self._replicas)) - self._asked.keys())
            names = ', '.join(map(str, missing))
            self._fail(
                f'Replica {names} has not asked for {self._patience:.0f} seconds, '
                'while others wait.'
            )

    def _fail(self, reason: str) -> None:
        self._error = f'{reason} Start all replicas again.'
        self._change.notify_all()
