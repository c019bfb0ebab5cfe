"""Ray engine: the roles of a run on the nodes of a Ray cluster.

Ray finds the nodes and starts a keeper there. The roles talk to each other through the
transport, and the launcher supervises them as it does on one machine.
"""

import contextlib
import dataclasses
import json
import os
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .....core.errors import ConfigError
from .....transport import addresses, keys
from ...settings import ParallelSettings
from ...supervision.process import RoleSpec
from ...supervision.role_logs import Incomplete
from ..ports import AUTO
from .cluster import Cluster
from .remote_role import SERVERS, RayRole
from .resources import DATA_ROLES, SHARED, RayOptions

__all__ = ['RayEngine']

WITNESS = '.same-folder'  # file that shows whether a node sees a folder
TOKEN_BYTES = 16


class RayEngine:
    """Places roles by `options`, the group `ray` of the config.

    folders: what is kept there must not be lost when a role moves to another node.
    """

    def __init__(self, options: Mapping[str, Any], folders: Sequence[Path]):
        self._options = RayOptions.read(options)
        self._folders = folders
        self._witnesses: dict[str, str] = {}
        self._ports: dict[str, int] = {}
        self._keys = keys.Keys()
        self._registry: Any = None  # handle of the AddressRegistry
        self._joined = False  # the run of another launcher

    def check(self, settings: ParallelSettings) -> None:
        wrong = {
            'transport': settings.transport != 'native',
            'agent_process': not settings.agent_process,
            'remote_envs': settings.remote_envs,
            'remote_replay': settings.remote_replay,
        }
        for name in (name for name, is_wrong in wrong.items() if is_wrong):
            raise ConfigError(
                f'run.{name}={getattr(settings, name)} does not go with --engine ray, '
                'which starts all roles itself and connects them over the network. '
                'Leave it at its default.'
            )
        for role, server in SERVERS.items():
            given = getattr(settings, f'{server}_addr')
            self._ports[role] = 0 if AUTO in given else addresses.parse(given).port

    @contextlib.contextmanager
    def open(self, settings: ParallelSettings) -> Iterator[None]:
        self._keys = _keys(settings.logdir / 'keys')
        self._cluster = Cluster(self._options, settings.logdir)
        self._registry = self._cluster.make_registry(settings.logdir)
        try:
            if self._options.storage == SHARED:
                self._witnesses = {
                    str(folder / WITNESS): secrets.token_hex(TOKEN_BYTES)
                    for folder in self._folders
                }
            for path, content in self._witnesses.items():
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                Path(path).write_text(content)
            yield
        finally:
            self._cluster.close()
            for path in self._witnesses:
                Path(path).unlink(missing_ok=True)

    @contextlib.contextmanager
    def join(
        self, settings: ParallelSettings, end: Callable[[str], None]
    ) -> Iterator[None]:
        self.check(settings)
        self._keys = keys.load(settings.logdir / 'keys')
        self._cluster = Cluster(self._options, settings.logdir)
        self._joined = True
        name = secrets.token_hex(TOKEN_BYTES)
        try:
            registry = self._registry = self._cluster.find_registry(settings.logdir)
            attend = threading.Thread(
                target=self._attend, args=(registry, name, end), daemon=True
            )
            attend.start()
            try:
                yield
            finally:
                # A thread in a call of Ray ends the process when Ray shuts down.
                registry.leave.remote(name)
                attend.join()
        finally:
            self._cluster.close()

    def _attend(self, registry: Any, name: str, end: Callable[[str], None]) -> None:
        """Calls `end` if the run ends before this launcher leaves it."""
        try:
            self._cluster.get(registry.attend.remote(name))
        except self._cluster.errors:
            end('the run has ended')

    def adapt(self, settings: ParallelSettings, envs: int) -> dict[str, Any]:
        adapted: dict[str, Any] = {f'{name}_addr': name for name in SERVERS.values()}
        if not settings.envs_per_worker:
            workers = self._cluster.env_workers(alone=self._joined)
            adapted['envs_per_worker'] = -(-envs // workers)
        return adapted

    def spawn(
        self,
        name: str,
        spec: RoleSpec,
        log: Path,
        run_tag: str,
        notify: Any,
        shown: bool = False,
        incomplete: Incomplete | None = None,  # Each node reports its own full disk.
    ) -> RayRole:
        has_data = name in DATA_ROLES
        given = self._keys if has_data else keys.Keys(client=self._keys.client)
        environ = {keys.ENVIRONMENT: json.dumps(dataclasses.asdict(given))}
        return RayRole(
            name,
            spec._replace(environ=environ),
            log,
            run_tag,
            notify,
            shown,
            self._cluster,
            self._registry,
            self._ports.get(name, 0),
            self._witnesses if has_data else None,
        )


def _keys(folder: Path) -> keys.Keys:
    """The keys of the run, made if there are none yet."""
    if not (folder / keys.SERVER_FILE).exists() and keys.ENVIRONMENT not in os.environ:
        keys.create(folder)
    return keys.load(folder)
