"""The bottleneck line of a real run says what to change, and it comes true."""

import contextlib
import re
import signal
import subprocess
import sys

import pytest
from combined_runs import HERE
from watching import FolderWatch

from embodied.logging import bottleneck, read_records

SECONDS = 180  # until the figures are there, on a busy machine
USED = 'usage/envs/step_ms'

pytestmark = pytest.mark.usefixtures('nothing_is_left')


def play(logdir, envs):
    """Means of the newest metrics of a run that is in full swing."""
    logdir.mkdir()
    command = [sys.executable, HERE / 'run_slow.py', logdir, str(envs)]

    def records():
        path = logdir / 'metrics.jsonl'
        found = read_records(path) if path.exists() else []
        speeds = [x for x in found if x.get('fps/train')]
        used = any(USED in x for x in found)
        return found if used and len(speeds) > bottleneck.WINDOW + 2 else None

    with (
        contextlib.closing(FolderWatch(logdir)) as watch,
        subprocess.Popen(command, stdout=subprocess.DEVNULL) as process,
    ):
        try:
            found = watch.await_that(records, SECONDS)
        finally:
            process.send_signal(signal.SIGTERM)
    return {
        name: mean(found, name) for name in bottleneck.METRICS if any_of(found, name)
    }


def any_of(records, name):
    return any(name in record for record in records)


def mean(records, name):
    values = [x[name] for x in records if name in x][-bottleneck.window_of(name) :]
    return sum(values) / len(values)


@pytest.mark.long
def test_more_environments_give_the_rate_that_was_promised(tmp_path):
    """An update for three steps of 0.1 s takes 0.05 s: some six environments."""
    slow = play(tmp_path / 'slow', 2)
    line = bottleneck.find_bottleneck(slow)
    assert line.name == 'environment-bound'
    found = re.search(r'run\.envs=(\d+) \(now 2\) should give ([\d.]+) ', line.reason)
    assert found, line
    envs, promised = int(found[1]), float(found[2])
    assert 5 <= envs <= 9
    fast = play(tmp_path / 'fast', envs)
    assert fast['fps/train'] == pytest.approx(promised, rel=0.25)
    assert fast['fps/train'] > 2 * slow['fps/train']
    print(f'{line}: it was {fast["fps/train"]:.1f}')
