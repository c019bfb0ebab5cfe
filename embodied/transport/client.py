"""Client over our own wires."""

from typing import Any

from .caller import Caller
from .futures import Future
from .interface import Client

__all__ = ['WireClient']


class WireClient(Client):
    """The face of a Caller, which has the options and does the work.

    Python looks every attribute of an object up the long way if its class makes some of
    them on demand, as clients do. A call uses fifty.
    """

    def __init__(
        self,
        addr: str | int,
        name: str = 'Client',
        maxinflight: int = 16,
        **options: Any,
    ) -> None:
        self._caller = Caller(addr, name, maxinflight, **options)
        self.call = self._caller.call  # type: ignore[method-assign] # without detour

    def call(self, method: str, *args: Any, rows: int = 0) -> Future:
        return self._caller.call(method, *args, rows=rows)

    def connect(self, timeout: float | None = None) -> None:
        self._caller.connect(timeout)

    @property
    def connected(self) -> bool:
        return self._caller.connected

    def move(self, addr: str | int) -> None:
        self._caller.move(addr)

    def close(self) -> None:
        self._caller.close()

    def stats(self) -> dict[str, float]:
        return self._caller.stats()
