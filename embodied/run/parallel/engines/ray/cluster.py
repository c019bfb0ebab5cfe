"""Ray cluster: finds nodes for roles, and remembers those that hold data."""

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .....core.errors import ConfigError
from .....core.files import write_whole
from ..optional_packages import require
from .address_registry import NAMESPACE, AddressRegistry, registry_name
from .keeper import Keeper
from .resources import DATA_ROLES, PINNED, RayOptions

__all__ = ['Cluster', 'Node']

PINS = 'nodes.json'  # in the logdir: nodes that hold data, by role
GIGABYTE = 1 << 30
TRACE = 0.001  # of a resource that a node must have, but that is not used up
THREADS = 8  # calls at the same time to one keeper
REACH_SECONDS = 10.0  # for a cluster to answer
LOOKUPS = 100_000  # in the registry at the same time


class Node(NamedTuple):
    """A machine of the cluster; its name was chosen by its owner, or is its address."""

    id: str
    name: str
    memory: float

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> 'Node':
        memory = record['Resources'].get('memory', 0.0)
        return cls(record['NodeID'], record['NodeName'], memory)


class Cluster:
    """A connection to Ray, to be closed."""

    def __init__(self, options: RayOptions, logdir: Path):
        self._options = options
        self._ray = require('ray', 'ray')
        self._pins = Pins(logdir) if options.storage == PINNED else None
        self._last: dict[str, Node] = {}  # where each role was placed
        try:
            _reach(options.address)
            self._ray.init(
                options.address,
                namespace=NAMESPACE,
                log_to_driver=False,
                logging_level='ERROR',
            )
        except OSError as error:  # among them ConnectionError
            raise ConfigError(
                f'There is no Ray cluster at ray.address={options.address} ({error}). '
                'Start one with `ray start --head`, add machines to it with `ray start '
                '--address HOST:6379`, or say --ray.address local.'
            ) from error

    def close(self) -> None:
        self._ray.shutdown()

    @property
    def errors(self) -> type[Exception]:
        """What calls raise when the other end, or this connection, has ended."""
        return self._ray.exceptions.RayError

    def get(self, reference: Any) -> Any:
        """Blocks until a call has returned."""
        return self._ray.get(reference)

    def env_workers(self, alone: bool) -> int:
        """How many workers there is room for, at least one.

        alone: whether no other roles have to be placed.
        """
        roles = () if alone else DATA_ROLES
        others = sum(self._options.wanted(name).cpus for name in roles)
        free = self._ray.available_resources().get('CPU', 0.0) - others
        share = self._options.env.cpus
        return max(1, int(free / share)) if share else 1

    def make_registry(self, logdir: Path) -> Any:
        """An address registry, on the node of this process, which has locked the folder
        of the run. Other launchers find it by that folder."""
        name = registry_name(str(logdir))
        here = self._ray.get_runtime_context().get_node_id()
        registry = self._ray.remote(AddressRegistry).options(
            name=name,
            num_cpus=0,
            max_concurrency=LOOKUPS,
            scheduling_strategy=self._affinity(here, soft=False),
        )
        try:
            return registry.remote()
        except ValueError:  # There is one of a launcher that was killed just before.
            self._ray.kill(self._ray.get_actor(name))
            return registry.remote()

    def find_registry(self, logdir: Path) -> Any:
        """The registry of a run that is going on."""
        try:
            return self._ray.get_actor(registry_name(str(logdir)))
        except ValueError as error:
            raise ConfigError(
                f'No run in {logdir} is going on in this cluster, which environments '
                'could join. Give the same --logdir as to `dreamer parallel --engine '
                'ray`.'
            ) from error

    def nodes(self) -> list[Node]:
        """The nodes that are alive."""
        return [Node.read(node) for node in self._ray.nodes() if node['Alive']]

    def node(self, node_id: str) -> Node:
        return next(
            node for node in map(Node.read, self._ray.nodes()) if node.id == node_id
        )

    def hold(self, name: str, node: Node) -> None:
        """Remembers where a role was placed, which may write to local disks there."""
        self._last[name] = node
        if self._pins and name in DATA_ROLES:
            self._pins.add(name, node.name)

    def forget(self, name: str) -> None:
        """Forgets the node of a role: it has failed, maybe unnoticed by Ray so far."""
        self._last.pop(name, None)

    def make_keeper(self, name: str) -> Any:
        """The handle of a keeper, which exists once a node has room for the role."""
        wanted = self._options.wanted(name)
        resources = {wanted.resource: TRACE} if wanted.resource else {}
        gpus = wanted.gpus
        if gpus < 0:
            gpus = float('GPU' in self._ray.cluster_resources())
        return (
            self._ray.remote(Keeper)
            .options(
                num_cpus=wanted.cpus,
                num_gpus=gpus,
                memory=int(wanted.gb * GIGABYTE) or None,
                resources=resources,
                scheduling_strategy=self._strategy(name, bool(resources)),
                max_concurrency=THREADS,
                max_restarts=0,
            )
            .remote()
        )

    def describe(self, name: str) -> str:
        """Why no node has room for a role."""
        wanted = self._options.wanted(name)
        needs = {key: value for key, value in wanted._asdict().items() if value}
        free = {
            key: round(value, 3)
            for key, value in self._ray.available_resources().items()
            if key in ('CPU', 'GPU') or key == wanted.resource
        }
        return f'it wants {needs} (see ray.* of the options), free are {free}'

    def _strategy(self, name: str, constrained: bool) -> Any:
        pinned = self._pins.find(name) if self._pins and name in DATA_ROLES else None
        if pinned:
            return self._affinity(self._pinned_node(name, pinned).id, soft=False)
        if name not in DATA_ROLES:
            return 'SPREAD'
        if name in self._last:
            return self._affinity(self._last[name].id, soft=True)
        if name == 'replay' and not constrained:
            # Its content is read through the page cache.
            roomiest = max(self.nodes(), key=lambda node: node.memory)
            return self._affinity(roomiest.id, soft=True)
        return 'DEFAULT'

    def _affinity(self, node_id: str, soft: bool) -> Any:
        strategies = require('ray.util.scheduling_strategies', 'ray')
        return strategies.NodeAffinitySchedulingStrategy(node_id, soft=soft)

    def _pinned_node(self, role: str, name: str) -> Node:
        for node in self.nodes():
            if node.name == name:
                return node
        raise lost_data(role, name)


def _reach(address: str) -> None:
    """Raises OSError if no process listens there; Ray would wait many minutes."""
    host, _, port = address.rpartition(':')
    if host and port.isdecimal():
        socket.create_connection((host.strip('[]'), int(port)), REACH_SECONDS).close()


class Pins:
    """Nodes that hold the data of roles, through all launchers of a run."""

    def __init__(self, logdir: Path):
        self._path = logdir / PINS
        self._nodes: dict[str, str] = {}
        if self._path.exists():
            self._nodes = self._read()

    def find(self, role: str) -> str | None:
        return self._nodes.get(role)

    def _read(self) -> dict[str, str]:
        try:
            return {
                str(k): str(v) for k, v in json.loads(self._path.read_bytes()).items()
            }
        except (OSError, ValueError, AttributeError) as error:
            raise ConfigError(
                f'{self._path} cannot be read: {error}. It says which nodes keep the '
                'data of the roles: restore it from a copy, or remove it if the roles '
                'may start anywhere.'
            ) from error

    def add(self, role: str, node: str) -> None:
        if self._nodes.get(role) != node:
            self._nodes[role] = node
            write_whole(self._path, json.dumps(self._nodes, indent=2))


def lost_data(role: str, node: str) -> ConfigError:
    return ConfigError(
        f'The {role} keeps its data on the node {node}, which is not in the cluster '
        '(ray.storage: pinned). Started elsewhere it would begin without them. Bring '
        'the node back and give the same command; or, with --ray.storage shared, keep '
        '--logdir and --replay.dir where all nodes see them.'
    )
