"""Vector environments through every command that plays environments."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from vector_tasks import MEMBERS
from watching import FolderWatch

from embodied import transport
from embodied.core.checkpoint import load_part, load_part_and_step
from embodied.logging import read_records

pytestmark = pytest.mark.usefixtures('nothing_is_left')

HERE = Path(__file__).parent
SECONDS = 240  # until a process that should end counts as hanging
COMMAND = [sys.executable, '-m', 'dreamerv3']
TINY = ['--configs', 'debug', '--jax.platform', 'cpu', '--logger.outputs', 'jsonl']
PLACES = (HERE, HERE.parents[1], HERE.parents[2])  # tasks, helpers, packages
OURS = {**os.environ, 'PYTHONPATH': os.pathsep.join(map(str, PLACES))}


def dreamer(*flags):
    return subprocess.run(
        [*COMMAND, *flags],
        env=OURS,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


def players(logdir, is_eval):
    scores = read_records(logdir / 'scores.jsonl')
    return {x['env'] for x in scores if x['eval'] == is_eval}


def test_one_process_trains_evaluates_and_films(tmp_path):
    logdir = tmp_path / 'run'
    flags = ['--task', 'vector_tasks:catch', '--env.own.size', '48']
    flags += ['--run.envs', '8', '--run.eval_envs', '1', '--run.steps', '160']
    flags += ['--run.eval_every', '80', '--logdir', str(logdir), '--run.debug', 'False']
    done = dreamer('train_eval', *TINY, *flags)
    assert done.returncode == 0, done.stderr
    assert players(logdir, is_eval=False) == set(range(8))
    # A whole vector environment evaluates: fewer members cannot.
    assert players(logdir, is_eval=True) == set(range(MEMBERS))
    scores = read_records(logdir / 'scores.jsonl')
    assert {score['length'] for score in scores} == {7}
    done = dreamer('eval', str(logdir), '--episodes', '6', '--video', '1')
    assert done.returncode == 0, done.stderr
    assert '6 episodes of vector_tasks:catch' in done.stdout
    assert 'eval_0_image' in done.stdout
    done = dreamer('play', str(logdir), '--out', str(tmp_path / 'film.gif'))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / 'film.gif').stat().st_size


def test_workers_of_vector_environments_need_no_jax(tmp_path):
    flags = ['--task', 'gym:CartPole-v1', '--env.gym.vector', 'True']
    flags += ['--run.envs', '4', '--run.envs_per_worker', '2', '--run.eval_envs', '1']
    flags += ['--random_agent', 'True', '--logdir', str(tmp_path)]
    process = subprocess.Popen([*COMMAND, 'parallel', *TINY, *flags], env=OURS)
    watch = FolderWatch(tmp_path)
    try:
        watch.follow(process.pid)
        scores = tmp_path / 'scores.jsonl'

        def played():
            assert process.poll() is None
            return scores.exists() and players(tmp_path, False) == {0, 1, 2, 3}

        watch.await_that(played, SECONDS)
        events = read_records(tmp_path / 'events.jsonl')
        roles = {x['role']: x['pid'] for x in events if x['event'] == 'role'}
        workers = {role for role in roles if 'env' in role or 'eval' in role}
        assert workers == {'env0', 'env2', 'eval0'}
        for role in workers:
            maps = Path(f'/proc/{roles[role]}/maps').read_text()
            assert 'jaxlib' not in maps
    finally:
        process.terminate()
        process.wait(SECONDS)
        watch.close()


@pytest.mark.parametrize('steps', [1, 4], ids=['workers', 'device'])
def test_environments_in_jax_are_played_by_workers_and_on_the_device(tmp_path, steps):
    flags = ['--task', 'vector_tasks:walk', '--run.envs', str(MEMBERS)]
    flags += ['--run.envs_per_worker', str(MEMBERS), '--run.eval_envs', '1']
    flags += ['--run.device_steps', str(steps), '--run.steps', '600']
    flags += ['--run.eval_every', '300', '--run.train_ratio', '4', '--logdir']
    done = dreamer('parallel', *TINY, *flags, str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert players(tmp_path, is_eval=False) == set(range(MEMBERS))
    scores = read_records(tmp_path / 'scores.jsonl')
    assert all(2 <= score['length'] <= 6 for score in scores)
    assert any(score['eval'] for score in scores)
    roles = {x.get('role') for x in read_records(tmp_path / 'events.jsonl')}
    assert ('env0' in roles) == (steps == 1)
    committed = load_part_and_step(tmp_path / 'ckpt' / 'replay', 'replay')[1]
    assert 600 <= committed < 600 + MEMBERS * steps
    updates = load_part(tmp_path / 'ckpt' / 'agent', 'learner')['updates']
    minimum = max(4 * 9, MEMBERS * 8 + 1)
    earned = (committed - minimum) * 4 / (4 * 8)
    assert abs(updates - earned) <= 1


def test_members_join_a_run_that_goes_on(tmp_path):
    address = f'localhost:{transport.free_port()}'
    flags = ['--task', 'vector_tasks:catch', '--random_agent', 'True', *TINY]
    flags += ['--run.actor_addr', address, '--run.eval_envs', '0']
    flags += ['--logdir', str(tmp_path)]
    scores = tmp_path / 'scores.jsonl'
    watch = FolderWatch(tmp_path)
    played = lambda envs: scores.exists() and players(tmp_path, False) >= set(envs)
    jobs = []
    try:
        for command, more in (
            ('parallel', ['--run.envs', '4']),
            ('parallel_envs', ['--run.envs', '12', '--run.first_env', '4']),
        ):
            jobs.append(subprocess.Popen([*COMMAND, command, *flags, *more], env=OURS))
            watch.follow(jobs[-1].pid)
            last = int(more[1])
            watch.await_that(lambda last=last: played(range(last)), SECONDS)
    finally:
        for job in reversed(jobs):
            job.terminate()
            job.wait(SECONDS)
        watch.close()


MISTAKES = {
    'one process': (
        ['train', '--task', 'vector_tasks:walk'],
        'run.device_steps=4 belongs to the distributed system, and the script is train',
    ),
    'not in JAX': (
        ['parallel', '--task', 'vector_tasks:catch'],
        'needs an environment that is written in JAX',
    ),
    'another number': (
        ['parallel', '--task', 'vector_tasks:walk', '--run.envs', '8'],
        'run.envs=8 and vector_tasks:walk has 4 members',
    ),
    'changed outside': (
        ['parallel', '--task', 'vector_tasks:walk', '--env.own.repeat', '2'],
        'Leave it at 1',
    ),
}


@pytest.mark.parametrize('name', MISTAKES)
def test_steps_on_the_device_that_cannot_be_are_explained(tmp_path, name):
    (command, *flags), words = MISTAKES[name]
    flags = ['--run.envs', '4', *flags, '--run.device_steps', '4']
    flags += ['--run.debug', 'False']
    done = dreamer(command, *TINY, *flags, '--logdir', str(tmp_path))
    assert done.returncode == 2, done.stderr
    assert words in ' '.join(done.stderr.split())
    assert 'Traceback' not in done.stderr


def test_a_number_that_does_not_fit_is_explained_and_leaves_no_process(tmp_path):
    flags = [
        '--task',
        'vector_tasks:catch',
        '--run.envs',
        '6',
        '--random_agent',
        'True',
    ]
    done = dreamer('parallel', *TINY, *flags, '--logdir', str(tmp_path))
    assert done.returncode == 2
    words = 'run.envs=6 is not a multiple of the 4 members'
    assert words in ' '.join(done.stderr.split())
