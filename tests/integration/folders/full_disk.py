"""A run on a disk that gets full: `unshare ... python full_disk.py FOLDER SCRIPT`.

Mounts a small disk on FOLDER, which needs a mount namespace of its own. Prints one JSON
line with the outcome of each of four starts: without room for its steps, on a full
disk, on a larger one, and on one that another program fills during the run.
"""

import contextlib
import json
import subprocess
import sys
from pathlib import Path

SIZE, LARGER = 4, 64  # MiB
STEPS = 20_000  # more than fit
OPTIONS = {
    'configs': 'tiny',
    'random_agent': True,
    'task': 'dummy_mixed',
    'env.dummy.size': 16,
    'replay.chunksize': 64,
    'replay.size': STEPS,
    'run.envs': 4,
    'run.envs_per_worker': 4,
    'run.eval_envs': 0,
    'run.save_every': 0.3,
    'run.log_every': 0.3,
}


def start(script, logdir, steps, filler=None):
    """filler: the file that fills the disk as soon as the run shows its steps."""
    own = {**OPTIONS, 'logdir': logdir, 'run.steps': steps}
    flags = [str(x) for k, v in own.items() for x in (f'--{k}', v)]
    command = [sys.executable, '-m', 'dreamerv3', script, *flags]
    pipes = {'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as run:
        if filler and run.stdout.readline().startswith('step '):
            fill(filler)
        _, text = run.communicate()
    status = logdir / 'status.json'
    state = json.loads(status.read_text())['state'] if status.exists() else None
    outcome = {'code': run.returncode, 'text': text}
    print(json.dumps({**outcome, 'state': state}), flush=True)


def fill(file):
    with file.open('wb', buffering=0) as filler, contextlib.suppress(OSError):
        while True:
            filler.write(bytes(4096))


def main():
    folder, script = Path(sys.argv[1]), sys.argv[2]
    mount = ['mount', '-t', 'tmpfs', 'none', str(folder), '-o']
    subprocess.run([*mount, f'size={SIZE}m'], check=True)
    logdir, filler = folder / 'run', folder / 'filler'
    start(script, logdir, STEPS)
    fill(filler)
    start(script, logdir, STEPS)
    subprocess.run([*mount, f'remount,size={LARGER}m'], check=True)
    start(script, logdir, 100)
    filler.unlink()
    start(script, logdir, STEPS * 100, filler)


if __name__ == '__main__':
    main()
