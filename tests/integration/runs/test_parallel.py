"""Whole distributed runs with real processes: every way to start one."""

import contextlib
import signal
import socket
import subprocess
import sys
import threading

import cloudpickle
import foreign
import portal
import pytest
from combined_runs import (
    SECONDS,
    bind,
    check_finished,
    fixed_addresses,
    run_combined,
)
from watching import FolderWatch

from dreamerv3 import config as config_lib
from dreamerv3 import factories
from dreamerv3.main import loop_args
from embodied import transport
from embodied.logging import read_records
from embodied.run import parallel
from embodied.run.parallel.context import RoleContext
from embodied.run.parallel.engines import ports as addresses
from embodied.run.parallel.settings import FIRST_EVAL_ENV, ParallelSettings
from embodied.run.parallel.supervision.supervisor import Supervisor

pytestmark = pytest.mark.usefixtures('nothing_is_left')


def test_parts_from_elsewhere_run_unmodified(tmp_path):
    run_combined(tmp_path)
    scores = check_finished(tmp_path)
    assert {score['eval'] for score in scores} == {False, True}
    assert {score['env'] for score in scores if not score['eval']} == {0, 1, 2}


def test_factories_may_come_as_bytes_and_the_agent_stay_inside(tmp_path, capfd):
    run_combined(
        tmp_path,
        cloudpickle.dumps(foreign.Agent),
        cloudpickle.dumps(foreign.Env),
        agent_process=False,
    )
    check_finished(tmp_path)
    assert 'cannot be restarted' in capfd.readouterr().out


@pytest.mark.parametrize('per_worker', [1, 2, 3])
def test_portal_and_groups_of_environments_make_no_difference(tmp_path, per_worker):
    changes = {'transport': 'portal'} if per_worker == 2 else {}
    run_combined(tmp_path, envs_per_worker=per_worker, **changes)
    check_finished(tmp_path)


def role_jobs(logdir, args):
    make = foreign.Replay, foreign.Replay, foreign.make_stream
    return {
        'agent': (parallel.parallel_agent, foreign.Agent, args),
        'replay': (parallel.parallel_replay, *make, args),
        'logger': (parallel.parallel_logger, bind(foreign.make_logger, logdir), args),
        'env0': (parallel.parallel_env, foreign.Env, 0, args),
        'env1': (parallel.parallel_env, foreign.Env, 1, args),
        'env2': (parallel.parallel_env, foreign.Env, 2, args),
        'eval3': (parallel.parallel_env, foreign.Env, 3, args, True),
    }


@pytest.mark.parametrize('backwards', [False, True])
def test_roles_started_apart_find_each_other_in_any_order(tmp_path, backwards):
    """Each one is there, and waits, before the next one is started."""
    args = foreign.make_args(tmp_path, **fixed_addresses())
    jobs = list(role_jobs(tmp_path, args).items())
    with Supervisor(ParallelSettings.read(args)) as supervisor:
        for name, job in reversed(jobs) if backwards else jobs:
            # It ends a worker that was still being started when the run was over.
            supervisor.start(name, *job, lead=name == 'agent')
        supervisor.wait()
    check_finished(tmp_path)


def test_threads_of_portal_run_actor_and_learner(tmp_path):
    """As in the usage examples that existing jobs follow."""
    args = foreign.make_args(tmp_path, **fixed_addresses())
    jobs = role_jobs(tmp_path, args)
    with Supervisor(ParallelSettings.read(args)) as supervisor:
        for name in jobs.keys() - {'agent'}:
            supervisor.start(name, *jobs[name])
        agent = foreign.Agent()
        barrier = threading.Barrier(2)
        workers = [
            portal.Thread(parallel.parallel_actor, agent, barrier, args),
            portal.Thread(parallel.parallel_learner, agent, barrier, args),
        ]
        portal.run(workers)
        supervisor.wait()
    check_finished(tmp_path)


# The keys that the reference names for each of the two, and no others.
ACTOR = ('actor_addr', 'actor_batch', 'actor_threads', 'replay_addr', 'logger_addr')
ACTOR += ('log_every',)
LEARNER = ('batch_size', 'batch_length', 'replay_addr', 'logger_addr', 'report_every')
LEARNER += ('save_every', 'log_every', 'report_batches', 'from_checkpoint')
LEARNER += ('from_checkpoint_regex',)


def test_actor_and_learner_need_no_more_keys_than_their_reference_names(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    logdir = tmp_path / 'logdir'  # of those that are given none
    options = {'actor_batch': -1, 'actor_threads': 1, 'save_every': 60.0}
    options |= {'report_batches': 1, 'from_checkpoint': ''}
    options |= {'from_checkpoint_regex': '.*', **fixed_addresses()}
    args = foreign.make_args(logdir, report_length=8, **options)
    jobs = role_jobs(logdir, args)
    with Supervisor(ParallelSettings.read(args)) as supervisor:
        for name in jobs.keys() - {'agent'}:
            supervisor.start(name, *jobs[name])
        agent, barrier = foreign.Agent(), threading.Barrier(2)
        portal.run([
            portal.Thread(role, agent, barrier, {key: args[key] for key in keys})
            for role, keys in (
                (parallel.parallel_actor, ACTOR),
                (parallel.parallel_learner, LEARNER),
            )
        ])  # fmt: skip
        supervisor.wait()
    check_finished(logdir)


def test_jobs_of_the_command_line_make_one_run(tmp_path):
    flags = ['--configs', 'tiny', '--random_agent', 'True', '--run.envs', '3']
    flags += ['--run.eval_envs', '1', '--run.eval_every', '100']
    flags += ['--run.remote_envs', 'True', '--run.remote_replay', 'True']
    flags += ['--logdir', str(tmp_path), '--logger.outputs', 'jsonl']
    for name, address in fixed_addresses().items():
        flags += [f'--run.{name}', address]
    jobs = [['parallel_env', '--run.first_env', str(number)] for number in (3, 2)]
    jobs += [['parallel_env', '--replica', '0', '--run.envs_per_worker', '2']]
    jobs += [['parallel_replay'], ['parallel']]
    command = [sys.executable, '-m', 'dreamerv3']

    def all_have_played():
        path = tmp_path / 'scores.jsonl'
        scores = read_records(path) if path.exists() else []
        return {(x['env'], x['eval']) for x in scores} >= players

    players = {(0, False), (1, False), (2, False)}
    players.add((FIRST_EVAL_ENV, True))
    with contextlib.closing(FolderWatch(tmp_path)) as watch:
        processes = [subprocess.Popen([*command, *job, *flags]) for job in jobs]
        watch.await_that(all_have_played, SECONDS)
    processes[-1].send_signal(signal.SIGTERM)
    assert [process.wait(SECONDS) for process in processes] == [0] * len(jobs)
    assert read_records(tmp_path / 'metrics.jsonl')[-1]['step'] > 0


@pytest.mark.parametrize('role', ['replay', 'logger'])
def test_a_job_that_a_signal_ends_says_that_it_is_still_needed(tmp_path, role):
    flags = ['--configs', 'debug', '--logger.outputs', 'jsonl']
    flags += ['--logdir', str(tmp_path)]
    flags += [f'--run.{name}={addr}' for name, addr in fixed_addresses().items()]
    context = RoleContext.of(loop_args(config_lib.resolve(flags)[0]))
    addr = getattr(context.settings, f'{role}_addr')
    command = [sys.executable, '-m', 'dreamerv3', f'parallel_{role}', *flags]
    with (
        subprocess.Popen(command) as process,
        context.make_client(addr, 'test') as client,
    ):
        client.connect(SECONDS)
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 128 + signal.SIGTERM
    assert (tmp_path / 'ckpt' / role / 'latest').exists()


def test_other_ports_are_chosen_when_some_are_taken_meanwhile(tmp_path, monkeypatch):
    with socket.create_server(('localhost', 0)) as taken:
        ports = [taken.getsockname()[1]]
        draw = lambda: ports.pop() if ports else transport.free_port()
        monkeypatch.setattr(addresses, 'free_port', draw)
        run_combined(tmp_path)
    assert ports == []
    check_finished(tmp_path)


def test_a_given_port_that_is_taken_is_named(tmp_path):
    with socket.create_server(('localhost', 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(transport.AddressInUse, match=f':{port}: Address already'):
            run_combined(tmp_path, replay_addr=f'localhost:{port}')


def without_jax(make, *args, **kwargs):
    """Calls a factory of a role that must not load JAX."""
    part = make(*args, **kwargs)
    assert 'jax' not in sys.modules
    return part


def test_real_agent_trains_and_only_its_process_loads_jax(tmp_path):
    flags = ['--configs', 'tiny', 'debug', r'--.*\.mults', '2', '4']
    flags += ['--run.steps', '300', '--run.eval_envs', '1', '--logger.outputs', 'jsonl']
    flags += ['--run.report_every', '2', '--logdir', str(tmp_path)]
    config, _ = config_lib.resolve(flags)
    parallel.combined(
        bind(factories.make_agent, config),
        bind(without_jax, factories.make_replay, config, 'replay'),
        bind(without_jax, factories.make_replay, config, 'eval_replay', mode='eval'),
        bind(without_jax, factories.make_env, config),
        bind(without_jax, factories.make_env, config, mode='eval'),
        bind(without_jax, factories.make_stream, config),
        bind(without_jax, factories.make_logger, config),
        loop_args(config),
    )
    records = read_records(tmp_path / 'metrics.jsonl')
    names = set().union(*records)
    assert {'train/loss/total', 'report/loss/rew', 'replay/train_ratio'} <= names
    assert records[-1]['step'] >= 300
