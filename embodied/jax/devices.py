"""Devices: which of them train, and how arrays are spread over them.

The devices of a replica form `data` groups of `fsdp`. Every device takes an equal share
of the rows of a batch. Large vectors of the state (parameters and moments) are split
within a group, and each group has all of them; the weights that training computes with
are on every device. Groups lie within a replica, so each replica has the whole state,
and acting, saving and loading need no other one.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from embodied.core.errors import ConfigError

__all__ = ['Devices', 'memory_in_use', 'near_host', 'placed']

DATA, FSDP = 'data', 'fsdp'
GIGABYTE = 1 << 30

# Metrics, and what backends call them.
COUNTS = {
    'gpu_memory_gb': 'bytes_in_use',
    'gpu_peak_gb': 'peak_bytes_in_use',
    'gpu_limit_gb': 'bytes_limit',
}


class Devices:
    """data * fsdp devices of this process, and as many of each other replica.

    rows, vector, whole: placements of batches, of large vectors of the state and of
    all else. On a single device they are None: nothing has to be said about it.
    """

    def __init__(self, data: int = 1, fsdp: int = 1):
        self.data, self.fsdp = data, fsdp
        self.replicas, self.replica = jax.process_count(), jax.process_index()
        self.single, self.leads = self.replicas == 1, self.replica == 0
        self.alone = self.replicas * data * fsdp == 1
        self.first: jax.Device | None = None  # of this replica
        self.rows: NamedSharding | None = None
        self.vector: NamedSharding | None = None
        self.whole: NamedSharding | None = None
        self._mine: dict[Any, NamedSharding] = {}  # the same within this replica
        if not self.alone:
            self._check()
            self._place()

    def _check(self) -> None:
        for name in (DATA, FSDP):
            value = getattr(self, name)
            if value < 1 or (name == FSDP and value & (value - 1)):
                allowed = 'a power of two' if name == FSDP else 'at least 1'
                raise ConfigError(f'jax.{name}={value} must be {allowed}.')
        needed, found = self.data * self.fsdp, jax.local_device_count()
        if needed > found:
            raise ConfigError(
                f'jax.data={self.data} x jax.fsdp={self.fsdp} needs {needed} devices, '
                f'and there are {found} here ({jax.local_devices()[0].device_kind}). '
                'Lower them; to try it out on a CPU, set the environment variable '
                f'XLA_FLAGS=--xla_force_host_platform_device_count={needed}.'
            )

    def _place(self) -> None:
        count = self.data * self.fsdp
        groups = [
            [x for x in jax.devices() if x.process_index == replica][:count]
            for replica in range(self.replicas)
        ]
        mine = groups[self.replica]
        self.first = mine[0]
        everywhere, here = self._mesh(sum(groups, [])), self._mesh(mine)
        specs = PartitionSpec((DATA, FSDP)), PartitionSpec(FSDP), PartitionSpec()
        placements = [NamedSharding(everywhere, spec) for spec in specs]
        self.rows, self.vector, self.whole = placements
        self._mine = {x: NamedSharding(here, x.spec) for x in placements}

    def _mesh(self, devices: Sequence[jax.Device]) -> Mesh:
        return Mesh(np.array(devices).reshape(-1, self.fsdp), (DATA, FSDP))

    def check_rows(self, rows: int) -> None:
        """Refuses a batch of which the devices of this replica get unequal shares."""
        count = self.data * self.fsdp
        if rows % count:
            raise ConfigError(
                f'batch_size={rows} cannot be split over {count} devices (jax.data='
                f'{self.data} x jax.fsdp={self.fsdp}). Use a multiple of {count}, or '
                'fewer devices.'
            )

    # Outside of programs

    def put_rows(self, tree: Any) -> Any:
        """Batches of all replicas as one, of which this process gives its part.

        What is there already stays as it is.
        """
        if self.single:
            return jax.device_put(tree, self.rows)
        return jax.tree.map(self._put_rows, tree)

    def _put_rows(self, x: Any) -> jax.Array:
        if isinstance(x, jax.Array) and x.sharding == self.rows:
            return x
        return jax.make_array_from_process_local_data(self.rows, np.asarray(x))

    def mine(self, array: jax.Array) -> jax.Array:
        """The part of this replica: its rows, or the whole of anything else."""
        if self.single:
            return array
        shape, parts = array.shape, [x.data for x in array.addressable_shards]
        if array.sharding == self.rows:
            shape = (shape[0] // self.replicas, *shape[1:])
        placement = self._mine[array.sharding]
        return jax.make_array_from_single_device_arrays(shape, placement, parts)

    def share(self, array: Any, placement: NamedSharding | None) -> jax.Array:
        """The array, which all replicas have, at this place."""
        if placement is None:
            return jax.device_put(array)
        array = jax.device_put(array, self._mine[placement])
        parts = [x.data for x in array.addressable_shards]
        return jax.make_array_from_single_device_arrays(array.shape, placement, parts)

    # Within programs

    def split(self, vector: jax.Array) -> jax.Array:
        """The vector, of which each device of a group computes a part."""
        # From a whole one, or else what it is made of would be split piece by piece.
        return self._constrain(self.gather(vector), self.vector)

    def place(
        self, arrays: list[jax.Array], placements: Sequence[NamedSharding | None]
    ) -> list[jax.Array]:
        """The arrays at these places, before anything else is made of them."""
        return [self._constrain(*x) for x in zip(arrays, placements, strict=True)]

    def gather(self, vector: jax.Array) -> jax.Array:
        """The vector, whole on every device."""
        return self._constrain(vector, self.whole)

    def _constrain(self, x: jax.Array, placement: NamedSharding | None) -> jax.Array:
        if placement is None:
            return x
        return jax.lax.with_sharding_constraint(x, placement)


def near_host(device: jax.Device | None = None) -> SingleDeviceSharding | None:
    """Where a program is to leave what the host reads next; None is wherever it likes.

    A GPU writes to locked memory of the host as the last thing that the program does.
    Otherwise the copy begins when the host has heard that the program is over.
    """
    device = device or jax.local_devices()[0]
    if device.platform != 'gpu':
        return None
    return SingleDeviceSharding(device, memory_kind='pinned_host')


def memory_in_use(devices: Sequence[jax.Device]) -> dict[str, float]:
    """Gigabytes on the fullest of these devices: in use, the most so far, and what
    this process may use. Empty where the backend does not count, as on a CPU."""
    counts = [x for device in devices if (x := device.memory_stats())]
    return {
        name: max(count[key] for count in counts) / GIGABYTE
        for name, key in COUNTS.items()
        if counts and all(key in count for count in counts)
    }


def placed(shapes: Any, placement: NamedSharding | None) -> Any:
    """The shapes of arrays that are at this place, to compile for."""
    place = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=placement)
    return jax.tree.map(place, shapes)
