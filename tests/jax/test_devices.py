"""Which layouts of devices are possible; what a single one is told."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from embodied.core.errors import ConfigError
from embodied.jax import Devices
from embodied.jax.devices import memory_in_use


@pytest.mark.parametrize(
    'data, fsdp, message',
    [
        (0, 1, 'jax.data=0 must be at least 1'),
        (1, 3, 'jax.fsdp=3 must be a power of two'),
        (1, -2, 'jax.fsdp=-2 must be a power of two'),
        (1024, 2, 'needs 2048 devices, and there are'),
    ],
)
def test_layouts_that_cannot_work_are_refused(data, fsdp, message):
    with pytest.raises(ConfigError, match=message):
        Devices(data, fsdp)


def test_rows_that_devices_cannot_share_are_refused():
    devices = Devices()
    devices.check_rows(7)
    devices.data, devices.fsdp = 2, 4
    devices.check_rows(16)
    message = r'batch_size=12 cannot be split over 8 devices \(jax.data=2 x jax.fsdp=4'
    with pytest.raises(ConfigError, match=message):
        devices.check_rows(12)


def test_a_single_device_is_told_nothing():
    devices = Devices()
    assert devices.alone
    assert {devices.rows, devices.vector, devices.whole, devices.first} == {None}
    vector = jnp.arange(4.0)
    for function in (devices.split, devices.gather):
        assert str(jax.make_jaxpr(function)(vector)).count('=') == 0
    np.testing.assert_array_equal(devices.put_rows(vector), vector)
    assert devices.mine(vector) is vector


class Counting:
    """A device as its backend counts; what an H200 says has more keys."""

    def __init__(self, used, peak, limit):
        self._counts = {'bytes_in_use': used, 'peak_bytes_in_use': peak}
        self._counts['bytes_limit'] = limit

    def memory_stats(self):
        return {**self._counts, 'num_allocs': 5}


def test_memory_is_that_of_the_fullest_device():
    gigabyte = 1 << 30
    devices = [Counting(3 * gigabyte, 5 * gigabyte, 100 * gigabyte)]
    devices += [Counting(gigabyte, 8 * gigabyte, 100 * gigabyte)]
    assert memory_in_use(devices) == {
        'gpu_memory_gb': 3.0,
        'gpu_peak_gb': 8.0,
        'gpu_limit_gb': 100.0,
    }


def test_memory_is_not_said_where_the_backend_does_not_count():
    counted = [x for x in jax.local_devices() if x.memory_stats()]
    assert bool(memory_in_use(jax.local_devices())) == bool(counted)
    assert memory_in_use([]) == {}
