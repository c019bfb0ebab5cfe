"""Role context: what a role of a distributed run works with.

The supervisor's child main makes the `Health` of a process, sends its heartbeats and
passes it to the role as the keyword argument `health`. An entry function combines it
with the options in its `args`, and hands the context to the classes of the role.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Self

from ... import transport
from ...logging import add_event
from ...processes.timeline import Timeline
from ...transport import addresses, keys
from ..shared.settings import NEEDED
from . import run_id
from .address_book import AddressBook
from .settings import SHARED, ParallelSettings
from .supervision.health import Health
from .timeouts import SAY_WAITING

__all__ = ['RoleContext']


@dataclasses.dataclass(frozen=True)
class RoleContext:
    """Options of the run, health of the role, and the way to the other roles.

    Making one opens nothing, so that a role class can be made without sockets.

    settings: the options, complete and checked.
    health: what the supervisor learns about the role, and what it asks of the role.
        A role without a supervisor has one of its own.
    addresses: finds servers that may move.
    assumed: names of options that were not given, so that other roles may have others.
    timeline: where the role records what it does, for one second at most.
    """

    settings: ParallelSettings
    health: Health = dataclasses.field(default_factory=Health)
    addresses: AddressBook = dataclasses.field(default_factory=AddressBook.of)
    assumed: frozenset[str] = frozenset()
    timeline: Timeline = dataclasses.field(default_factory=Timeline)

    @classmethod
    def of(
        cls,
        args: Mapping[str, Any],
        health: Health | None = None,
        needed: Sequence[str] = NEEDED,
        name: str = '',
    ) -> Self:
        """Context of a role with these options and, if it has a supervisor, health.

        needed: options that must be given. name: of the role, in timelines.
        """
        settings = ParallelSettings.read(args, needed)
        assumed = frozenset(name for name in SHARED if name not in args)
        timeline = Timeline(settings.timeline_plan, settings.logdir, name)
        return cls(settings, health or Health(), assumed=assumed, timeline=timeline)

    def make_server(
        self, addr: str, name: str, declared: Mapping[str, str] | None = None
    ) -> transport.ServerInterface:
        """A server at `addr`, to be bound and started by the caller.

        declared: values by name that must agree with those of clients that declare
            the same names.
        """
        options = self._common(declared)
        if self._needs_keys(addr):
            options['keys'] = keys.load(self.settings.logdir / 'keys').server
        addr = self.addresses.find(addr)
        return transport.Server(addr, name, self.settings.transport, **options)

    def make_client(
        self, addr: str, name: str, declared: Mapping[str, str] | None = None
    ) -> transport.ClientInterface:
        """A client that connects to the server at `addr`, and connects again."""
        options = self._common(declared)
        if self._needs_keys(addr):
            options['keys'] = keys.load(self.settings.logdir / 'keys').client
        where, kind = self.addresses.resolver(addr), self.settings.transport
        return transport.Client(where, name, transport=kind, **options)

    def await_server(
        self, client: transport.ClientInterface, what: str, addr: str
    ) -> None:
        """Blocks until the server answers, however late it is started."""
        try:
            client.connect(SAY_WAITING)
        except transport.Timeout:
            where = '' if self.addresses.is_name(addr) else f' at {addr}'
            print(f'Waiting for the {what}{where} to be started.', flush=True)
            client.connect()

    def crosses_network(self, addr: str) -> bool:
        """Whether answers from there may take long because they come from far away."""
        local = addresses.parse(self.addresses.find(addr)).local
        return self.settings.transport == 'native' and not local

    def note(self, event: str, **details: Any) -> None:
        """Adds an event to the run's events.jsonl."""
        add_event(self.settings.logdir, event, **details)

    def _needs_keys(self, addr: str) -> bool:
        return self.addresses.is_name(addr) or not addresses.parse(addr).loopback

    def _common(self, declared: Mapping[str, str] | None) -> dict[str, Any]:
        """Options that servers and clients share."""
        settings = self.settings
        run = settings.run_id or run_id.read(settings.logdir)
        known = {k: v for k, v in settings.shared.items() if k not in self.assumed}
        shared = {**known, **(declared or {})}
        return {
            'identity': transport.Identity(run, shared),
            'encrypt': settings.encrypt,
        }
