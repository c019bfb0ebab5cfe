"""Replay store against bare NumPy copies on the same machine, one JSON line each.

python bench/replay.py [--quick] [--dir FOLDER]

`value`, `yardstick` and `ratio` are by the clock: medians over rounds in which all that
is compared takes turns. `cpu_ratio` is the same in CPU time, which other load changes
less. `bar` is what `ratio` (or `value`, without a yardstick) must reach, `ok` whether
it does. `--quick` uses a tenth of the data.
"""

import argparse
import contextlib
import functools
import gc
import json
import mmap
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

import numpy as np

from embodied.replay import Replay
from embodied.replay.sampling import selectors

BATCH, LENGTH, STREAMS = 16, 65, 16
FRAME = (64, 64, 3)
ROUNDS, BURSTS = 15, 5
SEQUENCE = LENGTH * int(np.prod(FRAME))  # bytes
# Control groups of Linux that can limit memory: folder and name of the limit.
GROUPS = (
    (Path('/sys/fs/cgroup/memory'), 'memory.limit_in_bytes'),
    (Path('/sys/fs/cgroup'), 'memory.max'),
)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--quick', action='store_true', help='a tenth of the data')
    parser.add_argument(
        '--dir', help='where to put files; a temporary folder if absent'
    )
    parser.add_argument('--limited', nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.limited:
        sample_limited(*(Path(path) for path in args.limited))
        return
    scale = 10 if args.quick else 1
    home = Path(tempfile.mkdtemp(prefix='bench-replay-', dir=args.dir))
    try:
        bench_inserts(home, 10**9 // scale)
        bench_images(home, 400_000 // scale)
        bench_disk(home / 'many')
        bench_beyond_ram(home / 'many')
        bench_small_steps(2_000_000 // scale)
        bench_priorities(200_000 // scale)
        bench_bookkeeping(1_000_000 // scale)
    finally:
        shutil.rmtree(home)


def bench_inserts(home, nbytes):
    """Bursts of image steps from 16 streams, against copies of the same bytes.

    Every burst goes to new files, so both sides pay for the first touch of each page.
    The yardstick writes batch after batch in line, which is the fastest; keeping the
    streams apart, as a store must that serves sequences of them, is beside it.
    """
    steps = image_steps()
    rows = np.concatenate(
        [value.reshape(STREAMS, -1).view(np.uint8) for value in steps.values()], 1
    )
    calls = nbytes // rows.nbytes
    bursts = [
        functools.partial(burst_of_replay, home / 'insert', steps, calls),
        functools.partial(burst_in_line, home / 'bare', rows, calls),
        functools.partial(burst_apart, home / 'bare', rows, calls),
    ]
    size = calls * rows.nbytes / 1e9
    ours, bare, apart = taking_turns(bursts, size, BURSTS, before=warm_memory)
    line('insert_burst', ours, 'GB/s', bare, bar=0.5)
    line('insert_burst_by_stream', ours, 'GB/s', apart)
    bursts = [functools.partial(burst, sync=True) for burst in bursts[:2]]
    ours, bare = taking_turns(bursts, size, BURSTS, before=warm_memory)
    line('insert_sustained', ours, 'GB/s', bare)


@contextlib.contextmanager
def measured(times):
    """Adds seconds of the clock and of the CPU."""
    start = time.perf_counter(), time.process_time()
    yield
    times += [time.perf_counter() - start[0], time.process_time() - start[1]]


def burst_of_replay(path, steps, calls, sync=False):
    replay, workers, times = opened(path), np.arange(STREAMS), []
    with measured(times):
        for _ in range(calls):
            replay.add_batch(steps, workers)
        if sync:
            replay.sync()
    replay.close()
    shutil.rmtree(path)
    return times


def burst_in_line(path, rows, calls, sync=False):
    target, times = mapped(path, calls * rows.nbytes).reshape(calls, *rows.shape), []
    with measured(times):
        for i in range(calls):
            target[i] = rows
        if sync:
            flush(path)
    path.unlink()
    return times


def burst_apart(path, rows, calls):
    target, times = mapped(path, calls * rows.nbytes).reshape(STREAMS, calls, -1), []
    with measured(times):
        for i in range(calls):
            for stream in range(STREAMS):
                target[stream, i] = rows[stream]
    path.unlink()
    return times


def mapped(path, nbytes):
    """Bytes of a new file, reserved on the disk."""
    with open(path, 'w+b') as file:
        os.posix_fallocate(file.fileno(), 0, nbytes)
        return np.frombuffer(mmap.mmap(file.fileno(), nbytes), np.uint8)


def warm_memory(nbytes=3 * 10**9):
    """Uses free memory once: a virtual machine gets pages from its host on first use,
    which takes longer than anything measured here and hits what is measured first.
    """
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, 'MADV_HUGEPAGE'):
        memory.madvise(mmap.MADV_HUGEPAGE)
    np.frombuffer(memory, np.uint8)[:: mmap.PAGESIZE] = 1


def bench_images(home, steps):
    """Batches of image sequences from a small and a large folder, both warm."""
    few = filled(home / 'few', 20_000)
    many = filled(home / 'many', steps)
    frames = np.ones((20_000, *FRAME), np.uint8)
    target = np.empty((BATCH, LENGTH, *FRAME), np.uint8)
    rng = np.random.default_rng(0)
    touch(few), touch(many)
    plain, small, large, fresh = repeated(
        functools.partial(copy_slices, frames, target, rng),
        functools.partial(sample_into, few, few.sample(BATCH)),
        functools.partial(sample_into, many, many.sample(BATCH)),
        lambda _: few.sample(BATCH),
    )
    line('sample_images', small, 'batches/s', plain, bar=0.6)
    line('sample_images_large', large, 'batches/s', small, bar=0.85)
    line('sample_images_new_buffer', fresh, 'batches/s', plain)
    many.close(), few.close()


def bench_disk(path):
    """The large folder after a restart: opened, read from the disk, mapped again."""
    gc.collect()  # mapped files stay in the page cache
    forget(path)
    times = []
    with measured(times):
        many = opened(path)
    line('open_folder', [times], 'seconds', bar=1.0, below=True)
    reads = read_bytes()
    batch = many.sample(BATCH)
    cold = rates(functools.partial(sample_into, many, batch), 30)
    extra = {'disk_mb': round((read_bytes() - reads) / 31 / 1e6, 1)}
    line('sample_images_from_disk', [cold], 'batches/s', **extra)
    touch(many)
    many.close()
    del many
    many = opened(path)
    touched = rates(functools.partial(sample_into, many, batch), 50)
    line('sample_images_first_touch', [touched], 'batches/s')
    many.close()


def bench_beyond_ram(path):
    """The large folder in a process that gets a quarter of its size as memory."""
    gc.collect()
    forget(path)
    size = sum(file.stat().st_size for file in path.glob('*.seg'))
    name, limit = f'bench-replay-{os.getpid()}', max(size // 4, 2 * 10**8)
    for root, file in GROUPS:
        group = root / name
        try:
            group.mkdir()
        except OSError as error:
            reason = f'{group}: {error.strerror}'
            continue
        try:
            (group / file).write_text(str(limit))
            command = [sys.executable, __file__, '--limited', str(path), str(group)]
            subprocess.run(command, check=True)
            return
        except OSError as error:
            reason = f'{group / file}: {error.strerror}'
        finally:
            group.rmdir()
    print(json.dumps({'bench': 'replay/sample_beyond_ram', 'skipped': reason}))


def sample_limited(path, group):
    """Runs in the process of `bench_beyond_ram`; the yardstick is the disk itself."""
    (group / 'cgroup.procs').write_text(str(os.getpid()))
    replay, rng = opened(path), np.random.default_rng(0)
    files = [os.open(file, os.O_RDONLY) for file in sorted(path.glob('*.seg'))]
    for fd in files:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    out, room = replay.sample(BATCH), [bytearray(SEQUENCE)]

    def read_plainly(_):
        for fd in rng.choice(files, BATCH):
            offset = rng.integers(0, os.fstat(fd).st_size - SEQUENCE)
            os.preadv(fd, room, int(offset))

    sample = functools.partial(sample_into, replay, out)
    rates(sample, 200)  # until the memory is full
    reads = read_bytes()
    ours, plain = repeated(sample, read_plainly, calls=20, rounds=6)
    extra = {'disk_mb': round((read_bytes() - reads) / (6 * 40) / 1e6, 1)}
    line('sample_beyond_ram', ours, 'batches/s', plain, **extra)


def bench_small_steps(steps):
    """Steps of 1 KB, in memory; bare copies show what the caches alone make of it."""
    rng = np.random.default_rng(0)
    out = np.empty((BATCH, LENGTH, 256), np.float32)
    sampled, copied = [], []
    for count in (20_000, steps):
        replay = Replay(LENGTH)
        block = {'vector': np.ones((100, 256), np.float32)}
        for _ in range(count // 100):
            replay.add_batch(block, range(100))
        sampled.append(functools.partial(sample_into, replay, replay.sample(BATCH)))
        copied.append(
            functools.partial(copy_slices, np.ones((count, 256), np.float32), out, rng)
        )
    small, large, bare_small, bare_large = repeated(*sampled, *copied, calls=300)
    line('sample_small_steps', small, 'batches/s', bare_small)
    line('sample_small_steps_large', large, 'batches/s', small, bar=0.85)
    line('bare_small_steps_large', bare_large, 'batches/s', bare_small)


def sample_into(replay, out, _):
    replay.sample(BATCH, out=out)


def copy_slices(source, out, rng, _):
    for row, start in enumerate(rng.integers(0, len(source) - LENGTH, BATCH)):
        out[row] = source[start : start + LENGTH]


def bench_priorities(steps):
    """Drawing by priority, and sending priorities back."""
    uniform = filled(None, steps // 4)
    chosen = selectors.Prioritized(0.8, 0.5, np.inf, True)
    by_priority = filled(None, steps // 4, chosen)
    out, other = uniform.sample(BATCH), by_priority.sample(BATCH)
    plain, ours = repeated(
        functools.partial(sample_into, uniform, out),
        functools.partial(sample_into, by_priority, other),
    )
    line('sample_prioritized', ours, 'batches/s', plain, bar=0.5)
    data = {'stepid': other['stepid'][:, 1:], 'priority': np.ones((BATCH, LENGTH - 1))}
    (updates,) = repeated(lambda _: by_priority.update(data))
    milliseconds = [(1e3 / wall, 1e3 / cpu) for wall, cpu in updates]
    line('update_priorities', milliseconds, 'ms', bar=1.0, below=True)


def bench_bookkeeping(steps):
    """Memory beyond the mapped data: resident arrays of Python and NumPy."""
    for name, selector in (
        ('uniform', None),
        ('prioritized', selectors.Prioritized()),
    ):
        tracemalloc.start()
        replay = Replay(LENGTH, steps, online=True, selector=selector)
        block = {'x': np.ones((50,), np.float32)}
        for _ in range(steps // 50):
            replay.add_batch(block, range(50))
        used = tracemalloc.get_traced_memory()[0] / steps
        tracemalloc.stop()
        line(f'bookkeeping_{name}', [(used,)], 'bytes/step', bar=64, below=True)


def image_steps():
    rng = np.random.default_rng(0)
    return {
        'image': rng.integers(0, 256, (STREAMS, *FRAME), np.uint8),
        'reward': np.zeros(STREAMS, np.float32),
        'action': np.zeros(STREAMS, np.int32),
        'is_first': np.zeros(STREAMS, bool),
        'is_last': np.zeros(STREAMS, bool),
        'is_terminal': np.zeros(STREAMS, bool),
    }


def opened(path, selector=None):
    return Replay(LENGTH, directory=path, sync_every=0, selector=selector)


def filled(path, steps, selector=None):
    replay = opened(path, selector)
    block = image_steps()
    for _ in range(steps // STREAMS):
        replay.add_batch(block, range(STREAMS))
    return replay


def touch(replay):
    """Maps every page, so that what follows is warm."""
    for segment in replay._store.allocator.segments.values():
        segment.columns['image'].max(axis=(0, 2, 3, 4))


def forget(path):
    """Drops the files from the page cache; no process may map them."""
    for file in path.glob('*.seg'):
        flush(file)
        with open(file, 'rb') as opened_file:
            os.posix_fadvise(opened_file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def flush(path):
    with open(path, 'rb') as file:
        os.fdatasync(file.fileno())


def read_bytes():
    """What this process has made the disk read so far."""
    return 512 * resource.getrusage(resource.RUSAGE_SELF).ru_inblock


def rates(function, calls):
    """Calls per second by the clock and of the CPU."""
    times = []
    with measured(times):
        for i in range(calls):
            function(i)
    return [calls / seconds for seconds in times]


def repeated(*functions, calls=100, rounds=ROUNDS):
    """For each function: rates by round; in a round they take turns."""
    table = [[rates(function, calls) for function in functions] for _ in range(rounds)]
    return list(zip(*table, strict=True))


def taking_turns(functions, amount, rounds, before):
    """The same for functions that measure themselves, with `before` between them."""
    table = []
    for _ in range(rounds):
        row = []
        for function in functions:
            before()
            row.append([amount / seconds for seconds in function()])
        table.append(row)
    return list(zip(*table, strict=True))


def line(name, rounds, unit, yardstick=None, bar=None, below=False, **extra):
    """rounds: (by the clock, of the CPU) for each round, also of the yardstick."""
    value = statistics.median(each[0] for each in rounds)
    data = {'bench': f'replay/{name}', 'value': float(f'{value:.4g}'), 'unit': unit}
    measure = value
    if yardstick is not None:
        bare = statistics.median(each[0] for each in yardstick)
        measure, cpu = (
            statistics.median(
                ours[clock] / other[clock]
                for ours, other in zip(rounds, yardstick, strict=True)
            )
            for clock in (0, 1)
        )
        data |= {'yardstick': float(f'{bare:.4g}'), 'ratio': round(measure, 3)}
        data |= {'cpu_ratio': round(cpu, 3)}
    if bar is not None:
        data |= {'bar': bar, 'ok': bool(measure <= bar if below else measure >= bar)}
    print(json.dumps(data | extra), flush=True)


if __name__ == '__main__':
    main()
