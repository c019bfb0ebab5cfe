"""Parts of the tests of replay folders: makes, fills, kills and reads them."""

import numpy as np

from embodied.replay import Replay
from embodied.replay.tools.inspection import Inspection


def make(path, length=5, **kwargs):
    settings = {'capacity': 2000, 'chunksize': 8, 'sync_every': 0, **kwargs}
    return Replay(length, directory=path, **settings)


def add(replay, numbers, workers=(0, 1), serials=False):
    for n in numbers:
        step = {
            'x': np.array([1000 * w + n for w in workers]),
            'is_first': np.array([n % 10 == 0] * len(workers)),
            'dyn/deter': np.full((len(workers), 3), n, np.float32),
        }
        replay.add_batch(step, workers, [n] * len(workers) if serials else None)


def kill(replay):
    """Ends a replay the way a killed process would: nothing is said or synced."""
    replay._folder.close()


def stored_rows(path):
    look = Inspection(path)
    return {w: look.read('x', positions).tolist() for w, positions in look.streams()}
