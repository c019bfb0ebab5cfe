"""Child of the kill tests: adds, updates and samples until it is killed.

Prints the serial number of every batch after the replay has acknowledged it.
"""

import os
import sys

import numpy as np

from embodied.replay import Replay

STREAMS = 5


def image(worker, serial):
    """A picture that differs from every other and from a torn one."""
    rng = np.random.default_rng([worker, serial])
    return np.resize(rng.integers(0, 256, 64, np.uint8), (32, 32, 3))


def main(path, serial, capacity):
    replay = Replay(
        4, capacity, path, chunksize=16, online=True, seed=serial, sync_every=0.02
    )
    while True:
        images = np.stack([image(worker, serial) for worker in range(STREAMS)])
        latent = np.full((STREAMS, 500), serial, np.float32)
        step = {'image': images, 'dyn/deter': latent, 'dyn/stoch': latent}
        replay.add_batch(step, range(STREAMS), [serial] * STREAMS)
        os.write(1, f'{serial}\n'.encode())
        serial += 1
        if len(replay):
            batch = replay.sample(2)
            latent = batch['dyn/deter'] + 1000
            replay.update(
                {'stepid': batch['stepid'], 'dyn/deter': latent, 'dyn/stoch': latent}
            )


if __name__ == '__main__':
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
