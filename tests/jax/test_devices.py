"""Which layouts of devices are possible; what a single one is told."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from embodied.core.errors import ConfigError
from embodied.jax import Devices


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
