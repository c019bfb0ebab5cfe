"""Large arrays pass through shared memory that is never rewritten too early."""

import contextlib
import gc
import os
import subprocess
import sys

import internals
import numpy as np
import pytest

from embodied import transport
from embodied.transport.codec import frames as wire
from embodied.transport.codec import shared_memory as slabs
from embodied.transport.codec.encoding import pack, unpack_value

pytestmark = pytest.mark.skipif(not slabs.supported(), reason='needs memfd')

DEADLINE = 60.0
SIZE = 2_000_000


@pytest.fixture
def pool():
    return slabs.SlabPool(limit=64 * 2**20)


@pytest.fixture
def reader(pool):
    return slabs.SlabReader(os.getpid(), lambda number: pool.release(number, 'client'))


def send(pool, reader, value):
    message = pack(wire.Kind.REPLY, value, pool=pool, holder='client')
    frames = [bytes(frame) for frame in message.frames()]
    return unpack_value(wire.unpack(frames), reader)


def numbers(size=SIZE, seed=0):
    return np.random.default_rng(seed).integers(0, 256, size).astype(np.uint8)


def test_a_slab_is_reused_only_after_the_last_view_is_gone(pool, reader):
    first = send(pool, reader, {'a': numbers(seed=1), 'b': numbers(seed=2)})
    view = first['b'][100:200]
    del first
    gc.collect()
    second = send(pool, reader, numbers(seed=3))
    assert internals.slabs_of(pool)['used'] == 2
    np.testing.assert_array_equal(view, numbers(seed=2)[100:200])
    del view
    gc.collect()
    assert internals.slabs_of(pool)['used'] == 1
    np.testing.assert_array_equal(second, numbers(seed=3))


def test_slabs_are_reused_instead_of_growing(pool, reader):
    for seed in range(20):
        array = send(pool, reader, numbers(seed=seed))
        np.testing.assert_array_equal(array, numbers(seed=seed))
        del array
    assert internals.slabs_of(pool)['slabs'] == 1


def test_arrays_go_inline_when_no_slab_is_free(pool, reader):
    kept = [send(pool, reader, numbers(10_000_000, seed)) for seed in range(8)]
    assert internals.slabs_of(pool)['bytes'] <= 64 * 2**20
    for seed, array in enumerate(kept):
        np.testing.assert_array_equal(array, numbers(10_000_000, seed))


def test_arrays_made_in_a_slab_are_sent_without_a_copy(pool, reader):
    array = pool.empty((SIZE,), np.uint8)
    array[:] = numbers()
    arrived = send(pool, reader, [array, array[10:-10]])
    assert internals.slabs_of(pool)['slabs'] == 1
    np.testing.assert_array_equal(arrived[0], numbers())
    np.testing.assert_array_equal(arrived[1], numbers()[10:-10])
    array[0] = 77  # Shared memory: the receiver sees it.
    assert arrived[0][0] == 77
    del arrived
    gc.collect()
    assert internals.slabs_of(pool)['used'] == 1  # Our own array still lives on it.
    del array
    gc.collect()
    assert internals.slabs_of(pool)['used'] == 0


def test_slabs_of_a_vanished_process_are_never_written_again(pool, reader):
    array = send(pool, reader, numbers(seed=1))
    pool.drop('client')
    assert internals.slabs_of(pool)['slabs'] == 0
    for seed in range(5):
        send(pool, reader, numbers(seed=seed))
    np.testing.assert_array_equal(array, numbers(seed=1))


def test_all_dtypes_can_lie_in_slabs(pool, reader):
    import ml_dtypes

    for dtype in ('<f8', '<c16', ml_dtypes.bfloat16, 'M8[ns]', '<U4'):
        array = np.zeros(300_000, dtype)
        arrived = send(pool, reader, array)
        assert arrived.dtype == array.dtype
        assert arrived.ctypes.data % slabs.ALIGN == 0


def test_jax_arrays_that_alias_a_slab_keep_their_values(serve, connect):
    """JAX on the CPU takes over aligned NumPy buffers instead of copying them."""
    import jax

    def make(seed):
        return np.full(SIZE // 4, seed, np.float32)

    server = serve(make=make)
    client = connect()
    arrays = []
    for seed in range(10):
        arrays.append(jax.device_put(client.call('make', seed).result(DEADLINE)))
    for seed, array in enumerate(arrays):
        assert float(array[0]) == float(array[-1]) == seed
    assert internals.slabs_of(internals.pool_of(server))['used'] > 0


def test_pieces_of_files_and_foreign_memory_are_not_mapped(tmp_path):
    path = tmp_path / 'file'
    path.write_bytes(bytes(4096))
    with open(path, 'rb') as file, pytest.raises(transport.MessageError):
        slabs.map_slab(os.getpid(), file.fileno(), 4096)
    with pytest.raises(transport.MessageError):
        slabs.map_slab(os.getpid(), 10_000, 4096)
    unsealed = os.memfd_create(slabs.PREFIX)
    os.ftruncate(unsealed, 4096)
    with pytest.raises(transport.MessageError):
        slabs.map_slab(os.getpid(), unsealed, 4096)
    os.close(unsealed)


def test_places_outside_of_a_slab_are_refused(pool, reader):
    message = pack(wire.Kind.REPLY, numbers(), pool=pool, holder='client')
    place = message.places[0]
    for wrong in (
        place._replace(offset=place.size),
        place._replace(size=place.size * 2),
        place._replace(fd=0),
    ):
        with pytest.raises(transport.MessageError):
            unpack_value(
                message._replace(places=(wrong,)), slabs.SlabReader(os.getpid(), print)
            )


def test_a_killed_receiver_leaves_nothing_behind(serve, child, addr):
    """The sender drops the slab, and the memory goes with the process."""
    server = serve(make=lambda size: np.full(int(size), 7, np.uint8))
    gc.collect()
    before = open_slabs(os.getpid())
    for _ in range(3):
        holder = child('hold', addr, SIZE)
        assert holder.stdout.readline() == '7\n'
        assert internals.slabs_of(internals.pool_of(server))['used'] == 1
        holder.kill()
        holder.wait()
        await_departure(server, addr)
    assert internals.slabs_of(internals.pool_of(server))['slabs'] == 0
    gc.collect()
    assert open_slabs(os.getpid()) == before
    assert not [name for name in os.listdir('/dev/shm') if 'dreamer' in name]


def test_arrays_outlive_a_killed_sender(child, addr):
    server = child('server', addr)
    assert server.stdout.readline() == 'ready\n'
    with transport.Client(addr) as client:
        array = client.call('echo', numbers()).result(DEADLINE)
        server.kill()
        server.wait()
        np.testing.assert_array_equal(array, numbers())


def test_a_holder_sees_its_array_unchanged_while_others_are_served(
    serve, connect, child, addr
):
    counter = iter(range(1, 200))
    serve(make=lambda size: np.full(int(size), next(counter), np.uint8))
    holder = child('hold', addr, SIZE)
    first = holder.stdout.readline()
    client = connect()
    for _ in range(50):
        client.call('make', SIZE).result(DEADLINE)
    holder.stdin.write('\n')
    holder.stdin.flush()
    assert holder.stdout.readline() == first == '1\n'


def test_slabs_can_be_switched_off(serve, connect):
    options = {'settings': transport.Settings(slab_bytes=0)}
    server = serve(options=options, echo=lambda x: x)
    client = connect(**options)
    np.testing.assert_array_equal(
        client.call('echo', numbers()).result(DEADLINE), numbers()
    )
    assert internals.slabs_of(internals.pool_of(server))['slabs'] == 0


def open_slabs(pid):
    links = []
    for fd in os.listdir(f'/proc/{pid}/fd'):
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(f'/proc/{pid}/fd/{fd}'))
    return sum(slabs.PREFIX in link for link in links)


def await_departure(server, addr):
    """Calls, and so blocks, until the server knows no client but this one."""
    with transport.Client(addr) as probe:
        probe.connect(DEADLINE)
        while internals.clients(server) > 1:
            probe.call('make', 1).result(DEADLINE)
        # The loop has released what the other client held before it reads this.
        probe.call('make', 1).result(DEADLINE)


STILL_WRITING = """
from embodied.transport.codec.shared_memory import SlabPool

pool = SlabPool(limit=2**26)
array = pool.empty((2**20,), 'uint8')
pool.close()  # as when a role ends while a thread of it packs a message
array[:] = 7
print(int(array.sum()))
"""


def test_arrays_outlive_the_pool_that_they_came_from():
    command = [sys.executable, '-c', STILL_WRITING]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, f'{7 * 2**20}\n')
