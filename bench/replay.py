"""Replay store against bare NumPy copies on the same machine, one JSON line each.

python bench/replay.py [--quick] [--dir FOLDER]

Rates are per second of CPU time, which other load changes least, and the best of
several rounds, taken in turn with their yardstick; what waits for the disk is measured
by the clock. `--quick` uses a tenth of the data. `bar` is what `ratio` or `value` must
reach, `ok` whether it does.
"""

import argparse
import functools
import json
import mmap
import os
import shutil
import tempfile
import time
import tracemalloc
from pathlib import Path

import numpy as np

from embodied.replay import Replay, selectors

BATCH, LENGTH, STREAMS = 16, 65, 16
FRAME = (64, 64, 3)
ROUNDS = 8


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--quick', action='store_true', help='a tenth of the data')
    parser.add_argument(
        '--dir', help='where to put files; a temporary folder if absent'
    )
    args = parser.parse_args()
    scale = 10 if args.quick else 1
    home = Path(tempfile.mkdtemp(prefix='bench-replay-', dir=args.dir))
    try:
        bench_inserts(home, 10**9 // scale)
        bench_images(home, 400_000 // scale)
        bench_small_steps(2_000_000 // scale)
        bench_priorities(200_000 // scale)
        bench_bookkeeping(1_000_000 // scale)
    finally:
        shutil.rmtree(home)


def bench_inserts(home, nbytes):
    """A burst of image steps from 16 streams, against copies of the same bytes.

    The yardstick writes the steps of each stream to its own part of a mapping, as any
    store must that serves sequences of one stream; writing all in line is beside it.
    """
    steps = image_steps()
    size = sum(value.nbytes for value in steps.values())
    rows = np.concatenate(
        [value.reshape(STREAMS, -1).view(np.uint8) for value in steps.values()], 1
    )
    calls = nbytes // size
    apart = mapped(home / 'apart', calls * size).reshape(STREAMS, calls, -1)
    together = mapped(home / 'together', calls * size).reshape(calls, STREAMS, -1)

    def copy_apart(i):
        for row in range(STREAMS):
            apart[row, i] = rows[row]

    replay = opened(home / 'insert')
    replay.add_batch(steps, range(STREAMS))
    bare = rate(copy_apart, calls) * size
    line_rate = rate(lambda i: together.__setitem__(i, rows), calls) * size
    ours = rate(lambda _: replay.add_batch(steps, range(STREAMS)), calls) * size
    line('insert_burst', ours, 'bytes/s', yardstick=bare, bar=0.5)
    line('insert_burst_in_line', ours, 'bytes/s', yardstick=line_rate)
    replay.sync()
    (home / 'apart').unlink()
    apart = mapped(home / 'apart', calls * size).reshape(STREAMS, calls, -1)
    start = time.perf_counter()
    for i in range(calls):
        copy_apart(i)
    with open(home / 'apart', 'rb') as file:
        os.fdatasync(file.fileno())
    disk = calls * size / (time.perf_counter() - start)
    start = time.perf_counter()
    for _ in range(calls):
        replay.add_batch(steps, range(STREAMS))
    replay.sync()
    sustained = calls * size / (time.perf_counter() - start)
    line('insert_sustained', sustained, 'bytes/s', yardstick=disk)
    replay.close()
    for name in ('apart', 'together'):
        (home / name).unlink()
    shutil.rmtree(home / 'insert')


def mapped(path, nbytes):
    """Bytes of a new file, reserved on the disk."""
    with open(path, 'w+b') as file:
        os.posix_fallocate(file.fileno(), 0, nbytes)
        return np.frombuffer(mmap.mmap(file.fileno(), nbytes), np.uint8)


def bench_images(home, steps):
    """Batches of image sequences from a small and a large folder."""
    few = filled(home / 'few', 20_000)
    many = filled(home / 'many', steps)
    frames = np.ones((20_000, *FRAME), np.uint8)
    target = np.empty((BATCH, LENGTH, *FRAME), np.uint8)
    rng = np.random.default_rng(0)
    touch(few), touch(many)
    batch = few.sample(BATCH)
    plain, small, large = best(
        functools.partial(copy_slices, frames, target, rng),
        functools.partial(sample_into, few, batch),
        functools.partial(sample_into, many, many.sample(BATCH)),
    )
    line('sample_images', small, 'batches/s', yardstick=plain, bar=0.6)
    line('sample_images_large', large, 'batches/s', yardstick=small, bar=0.85)
    fresh = rate(lambda _: few.sample(BATCH), 100)
    line('sample_images_new_buffer', fresh, 'batches/s', yardstick=plain)
    many.close(), few.close()
    forget(home / 'many')
    start = time.perf_counter()
    many = opened(home / 'many')
    line('open_folder', time.perf_counter() - start, 'seconds', bar=1.0, below=True)
    cold = rate(functools.partial(sample_into, many, batch), 30, time.perf_counter)
    line('sample_images_from_disk', cold, 'batches/s', yardstick=plain)
    many.close()
    many = opened(home / 'many')
    touched = rate(functools.partial(sample_into, many, batch), 50)
    line('sample_images_first_touch', touched, 'batches/s', yardstick=plain)
    many.close()


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
    small, large, bare_small, bare_large = best(*sampled, *copied, calls=300)
    line('sample_small_steps', small, 'batches/s', yardstick=bare_small)
    line('sample_small_steps_large', large, 'batches/s', yardstick=small, bar=0.85)
    line('bare_small_steps_large', bare_large, 'batches/s', yardstick=bare_small)


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
    plain, ours = best(
        functools.partial(sample_into, uniform, out),
        functools.partial(sample_into, by_priority, other),
    )
    line('sample_prioritized', ours, 'batches/s', yardstick=plain, bar=0.5)
    data = {'stepid': other['stepid'][:, 1:], 'priority': np.ones((BATCH, LENGTH - 1))}
    (updates,) = best(lambda _: by_priority.update(data))
    line('update_priorities', 1e3 / updates, 'ms', bar=1.0, below=True)


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
        line(f'bookkeeping_{name}', used, 'bytes/step', bar=64, below=True)


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
    """Drops the files from the page cache."""
    for file in path.glob('*.seg'):
        fd = os.open(file, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def rate(function, calls, clock=time.process_time):
    start = clock()
    for i in range(calls):
        function(i)
    return calls / (clock() - start)


def best(*functions, calls=100):
    rates = [[rate(function, calls) for function in functions] for _ in range(ROUNDS)]
    return np.max(rates, 0).tolist()


def line(name, value, unit, yardstick=None, bar=None, below=False):
    data = {'bench': f'replay/{name}', 'value': float(f'{value:.4g}'), 'unit': unit}
    measure = value
    if yardstick is not None:
        measure = value / yardstick
        data |= {'yardstick': float(f'{yardstick:.4g}'), 'ratio': round(measure, 3)}
    if bar is not None:
        data |= {'bar': bar, 'ok': bool(measure <= bar if below else measure >= bar)}
    print(json.dumps(data), flush=True)


if __name__ == '__main__':
    main()
