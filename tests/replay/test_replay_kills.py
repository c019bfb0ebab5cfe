"""Replay under kill -9: nothing acknowledged is lost, doubled or torn."""

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from embodied.replay.storage.schema import VERSION
from embodied.replay.tools.inspection import Inspection

sys.path.insert(0, str(Path(__file__).parent))
from replay_writer import STREAMS, image  # noqa: E402 (a file beside this one)

TORN = 8  # rows that a kill can tear: the writer updates two sequences of four
RESENT = 3  # batches sent again after a kill, as a client does that got no answer
SCRIPT = Path(__file__).with_name('replay_writer.py')


def write_and_kill(folder, serial, capacity, lines):
    """Runs a writer until it has acknowledged `lines` batches; returns the last one."""
    command = [sys.executable, SCRIPT, folder, serial, capacity]
    process = subprocess.Popen([str(x) for x in command], stdout=subprocess.PIPE)
    for _ in range(lines):
        assert process.stdout.readline().strip(), 'the writer died by itself'
    process.kill()
    rest = process.stdout.read()
    process.wait()
    process.stdout.close()
    # What it acknowledged between our decision and its death counts too.
    acknowledged = rest.decode().rpartition('\n')[0].split('\n')
    return max(int(acknowledged[-1] or -1), serial + lines - 1)


def check_rows(folder, acknowledged, capacity, kills):
    look = Inspection(folder)
    assert not look.problems()
    seen = set()
    for worker, positions in look.streams():
        assert worker not in seen, 'a stream has a gap'
        seen.add(worker)
        serials = look.serials(positions)
        assert (np.diff(serials) == 1).all()
        assert acknowledged <= serials[-1] <= acknowledged + 1
        assert serials[0] <= max(0, acknowledged - capacity // STREAMS + 2)
        pictures = look.read('image', positions)
        for serial, picture in zip(serials, pictures, strict=True):
            assert (picture == image(worker, serial)).all()
        whole = look.read(VERSION.name, positions) % 2 == 0
        deter, stoch = (look.read(key, positions) for key in ('dyn/deter', 'dyn/stoch'))
        assert (deter[whole] == deter[whole][:, :1]).all()
        assert (deter[whole] == stoch[whole]).all()
        # Latents begin as the serial and grow by 1000. A torn one reads as zero, stays
        # torn until the step is trained on again, and then grows from there.
        latent = deter[:, 0]
        own = whole & ((latent - serials) % 1000 == 0)
        again = whole & (latent % 1000 == 0)
        assert (~whole | own | again).all()
        assert (~own).sum() <= TORN * kills
    assert seen == set(range(STREAMS))


def kill_loop(folder, kills, capacity, seed):
    rng = random.Random(seed)
    acknowledged = -1
    for kill in range(kills):
        start = max(0, acknowledged + 1 - RESENT)
        lines = rng.randint(RESENT + 1, 150)
        acknowledged = write_and_kill(folder, start, capacity, lines)
        check_rows(folder, acknowledged, capacity, kill + 1)


@pytest.mark.parametrize('capacity', [10**6, 400])
def test_a_killed_writer_loses_doubles_and_tears_nothing(tmp_path, capacity):
    kill_loop(tmp_path, 8, capacity, seed=capacity)


@pytest.mark.long
@pytest.mark.parametrize('capacity', [10**6, 400])
@pytest.mark.parametrize('seed', [0, 1])
def test_fifty_kills_lose_double_and_tear_nothing(tmp_path, capacity, seed):
    kill_loop(tmp_path, 50, capacity, seed)
