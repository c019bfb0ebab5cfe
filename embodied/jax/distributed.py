"""Distributed: the processes of a run that train one agent together.

They find each other through replica 0. What they compute together needs all of them, so
that a replica that dies makes the others fail, too; then all start again.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from embodied.clock.replica_timeouts import (
    REPLICA_SILENT,
    REPLICAS_END,
    REPLICAS_START,
)
from embodied.core.errors import RoleError

__all__ = ['await_all', 'connect', 'take_from_first']


def connect(replica: int, replicas: int, address: str) -> None:
    """Before anything else that JAX does. address: host:port, served by replica 0."""
    # Ours know what to save when a job is stopped.
    jax.config.update('jax_enable_preemption_service', False)
    jax.config.update('jax_cpu_collectives_implementation', 'gloo')
    try:
        jax.distributed.initialize(
            address,
            replicas,
            replica,
            cluster_detection_method='deactivate',
            initialization_timeout=REPLICAS_START,
            heartbeat_timeout_seconds=REPLICA_SILENT,
            shutdown_timeout_seconds=REPLICAS_END,
        )
    except RuntimeError as error:
        raise RoleError(
            f'Replica {replica} of {replicas} cannot meet the others at '
            f'jax.coordinator_address={address}: {error}. Start all of them within '
            f'{REPLICAS_START} s, with an address of replica 0 that all can reach.'
        ) from error


def take_from_first(
    arrays: Sequence[Any], numbers: Sequence[int]
) -> tuple[list[np.ndarray], list[int]]:
    """What replica 0 has given; all replicas call it, with the same shapes."""
    # JAX has no 64 bits unless told so for the whole process.
    words = np.array(numbers, np.int64).view(np.uint32)
    arrays, words = multihost_utils.broadcast_one_to_all((list(arrays), words))
    return list(arrays), np.ascontiguousarray(words).view(np.int64).tolist()


def await_all(what: str) -> None:
    """Returns when all replicas have called it."""
    multihost_utils.sync_global_devices(what)
