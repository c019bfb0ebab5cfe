"""Environment processes of the reference, which know only portal, play a whole run."""

import functools
import subprocess
import sys
from pathlib import Path

import foreign
from combined_runs import check_finished

from embodied import transport
from embodied.run import parallel

LOOP = Path(__file__).parents[1] / 'reference_env.py'
SECONDS = 60.0  # for a process to end


def test_environment_loops_of_the_reference_play_until_the_run_ends(tmp_path):
    port = transport.free_port()
    players = [(0, False), (1, False), (2, False), (3, True)]
    jobs = [
        subprocess.Popen(
            [sys.executable, LOOP, str(port), str(envid), str(is_eval)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for envid, is_eval in players
    ]
    try:
        parallel.combined(
            foreign.Agent,
            foreign.Replay,
            foreign.Replay,
            foreign.Env,
            foreign.Env,
            foreign.make_stream,
            functools.partial(foreign.make_logger, tmp_path),
            foreign.make_args(
                tmp_path,
                transport='portal',
                remote_envs=True,
                actor_addr=f'localhost:{port}',
            ),
        )
        outputs = [job.communicate(timeout=SECONDS)[0] for job in jobs]
    finally:
        for job in jobs:
            job.kill()
            job.wait()
    assert [job.returncode for job in jobs] == [0] * len(jobs)
    episodes = [int(out.rpartition('episodes ')[2]) for out in outputs]
    scores = check_finished(tmp_path)
    assert {(x['env'], x['eval']) for x in scores} == set(players)
    for (envid, is_eval), count in zip(players, episodes, strict=True):
        known = [x for x in scores if (x['env'], x['eval']) == (envid, is_eval)]
        # The last ones may have ended after the run.
        assert count - 2 <= len(known) <= count
