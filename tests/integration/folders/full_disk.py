"""A run on a disk that gets full: `unshare ... python full_disk.py FOLDER SCRIPT`.

Mounts a small disk on FOLDER, which needs a mount namespace of its own. Prints one JSON
line with the outcome of each of three starts: without room for its steps, on a full
disk, and on a larger one.
"""

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
    'quiet': True,
    'replay.chunksize': 64,
    'replay.size': STEPS,
    'run.envs': 4,
    'run.envs_per_worker': 4,
    'run.eval_envs': 0,
    'run.save_every': 0.3,
}


def start(script, logdir, steps):
    own = {**OPTIONS, 'logdir': logdir, 'run.steps': steps}
    flags = [str(x) for k, v in own.items() for x in (f'--{k}', v)]
    command = [sys.executable, '-m', 'dreamerv3', script, *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    status = logdir / 'status.json'
    state = json.loads(status.read_text())['state'] if status.exists() else None
    outcome = {'code': done.returncode, 'text': done.stdout + done.stderr}
    print(json.dumps({**outcome, 'state': state}), flush=True)


def main():
    folder, script = Path(sys.argv[1]), sys.argv[2]
    mount = ['mount', '-t', 'tmpfs', 'none', str(folder), '-o']
    subprocess.run([*mount, f'size={SIZE}m'], check=True)
    logdir, filler = folder / 'run', folder / 'filler'
    start(script, logdir, STEPS)
    with filler.open('wb', buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    start(script, logdir, STEPS)
    subprocess.run([*mount, f'remount,size={LARGER}m'], check=True)
    start(script, logdir, 100)


if __name__ == '__main__':
    main()
