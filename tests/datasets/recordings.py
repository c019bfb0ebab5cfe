"""Recorded episodes for tests: small, with values that say where they are from."""

import numpy as np

from embodied.replay import Replay


def episode(number, length, terminal=True, **more):
    """Row t of episode n observes [n, t] and has received the reward t."""
    steps = np.arange(length)
    return {
        'vector': np.stack([np.full(length, number), steps], 1).astype(np.float32),
        'action': (steps % 3).astype(np.int32),
        'reward': steps.astype(np.float32),
        'is_terminal': (steps == length - 1) & terminal,
        **more,
    }


def write_npz(folder, episodes):
    folder.mkdir(parents=True, exist_ok=True)
    for number, values in enumerate(episodes):
        np.savez_compressed(folder / f'episode{number:03d}.npz', **values)
    return folder


def flagged(values):
    """The same with the flags that runs store."""
    length = len(values['reward'])
    first, last = np.zeros(length, bool), np.zeros(length, bool)
    first[0] = last[-1] = True
    return {**values, 'is_first': first, 'is_last': last}


def write_replay(folder, episodes, close=True):
    """Replay of one stream; without `close`, of a run that is going on."""
    replay = Replay(2, 1000, folder, chunksize=16, sync_every=0)
    for values in episodes:
        for t in range(len(values['reward'])):
            replay.add({key: value[t] for key, value in values.items()})
    if close:
        replay.close()
    return replay
