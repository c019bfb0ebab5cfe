"""Whole distributed runs with real processes, from their start to every kind of end."""

import contextlib
import functools
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import cloudpickle
import foreign
import portal
import psutil
import pytest
from watching import FolderWatch

from dreamerv3 import config as config_lib
from dreamerv3 import factories
from dreamerv3.main import loop_args
from embodied import transport
from embodied.core.checkpoint import load_part, load_part_and_step
from embodied.core.errors import DreamerError, RoleError
from embodied.logging import read_records
from embodied.processes.signals import REPEAT_KEY
from embodied.run import parallel
from embodied.run.parallel.context import RoleContext
from embodied.run.parallel.engines import ports as addresses
from embodied.run.parallel.settings import FIRST_EVAL_ENV, ParallelSettings
from embodied.run.parallel.supervision.supervisor import Supervisor

pytestmark = pytest.mark.usefixtures('nothing_is_left')

HERE = Path(__file__).parents[1]
SECONDS = 60  # until a process that should end counts as hanging
MINIMUM = 15  # steps before training: a batch of sequences
bind = functools.partial


@pytest.fixture
def door(tmp_path):
    """A named pipe through which processes tell that they are there."""
    path = tmp_path / 'door'
    os.mkfifo(path)
    # For writing as well: without writers, reading would not wait but end.
    with os.fdopen(os.open(path, os.O_RDWR), 'r') as file:
        yield Door(path, file.readline)


class Door(NamedTuple):
    path: Path
    await_knock: Callable[[], str]


def fixed_addresses():
    names = ('actor_addr', 'replay_addr', 'logger_addr')
    return {name: f'localhost:{transport.free_port()}' for name in names}


def run_combined(
    logdir,
    make_agent=foreign.Agent,
    make_env=foreign.Env,
    make_replay=foreign.Replay,
    make_logger=None,
    **changes,
):
    parallel.combined(
        make_agent,
        make_replay,
        foreign.Replay,
        make_env,
        foreign.Env,
        foreign.make_stream,
        make_logger or bind(foreign.make_logger, logdir),
        foreign.make_args(logdir, **changes),
    )


def check_finished(logdir, steps=300, ratio=4.0):
    """The folder of a run that has come to its end, with all counters in agreement."""
    updates = load_part(logdir / 'ckpt' / 'agent', 'agent')['updates']
    committed = load_part_and_step(logdir / 'ckpt' / 'replay', 'replay')[1]
    assert steps <= committed < steps + 3
    # Behind by less than one update, ahead by no more than the limiter allows.
    earned = (committed - MINIMUM) * ratio / foreign.LENGTH
    assert earned - foreign.BATCH < updates * foreign.BATCH <= earned + 4 * 3
    records = read_records(logdir / 'metrics.jsonl')
    numbers = [record['step'] for record in records]
    assert numbers == sorted(numbers)
    assert numbers[-1] == committed
    counted = [x['train/updates'] for x in records if 'train/updates' in x]
    assert counted[-1] == updates
    ended = read_records(logdir / 'events.jsonl')[-1]
    assert (ended['event'], ended['reason']) == ('ended', 'run.steps')
    scores = read_records(logdir / 'scores.jsonl')
    assert {score['length'] for score in scores} == {9}
    return scores


# Starting


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


# The real agent


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


# Ending


@pytest.fixture
def start_script(door):
    """Starts run_foreign.py; what a failed test leaves behind is killed."""
    started = []

    def start(logdir, *flags):
        script = HERE / 'run_foreign.py'
        command = [sys.executable, str(script), str(logdir), str(door.path), *flags]
        started.append(subprocess.Popen(command))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def processes_of(launcher):
    return psutil.Process(launcher.pid).children(recursive=True)


def await_ends(processes):
    _, alive = psutil.wait_procs(processes, SECONDS)
    assert alive == []


def test_duration_ends_a_run(tmp_path):
    run_combined(tmp_path, steps=1e9, duration=3.0)
    ended = read_records(tmp_path / 'events.jsonl')[-1]
    assert (ended['event'], ended['reason']) == ('ended', 'run.duration')
    saved = load_part(tmp_path / 'ckpt' / 'agent', 'learner')
    assert saved['seconds'] >= 3.0


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_with_a_save_and_the_same_command_goes_on(
    tmp_path, door, start_script, number
):
    logdir = tmp_path / 'run'
    launcher = start_script(logdir, '--steps', '1e9', '--at', '20')
    door.await_knock()
    processes = processes_of(launcher)
    assert len(processes) >= 5  # agent, replay, logger and workers of both kinds
    launcher.send_signal(number)
    assert launcher.wait(SECONDS) == 0
    await_ends(processes)
    before = load_part(logdir / 'ckpt' / 'agent', 'learner')
    assert before['updates'] >= 20
    assert read_records(logdir / 'metrics.jsonl')[-1]['step'] > 0
    steps = before['steps'] + 100
    again = start_script(logdir, '--steps', str(steps))
    assert again.wait(SECONDS) == 0
    after = load_part(logdir / 'ckpt' / 'agent', 'learner')
    assert after['updates'] > before['updates']
    assert load_part_and_step(logdir / 'ckpt' / 'replay', 'replay')[1] >= steps
    numbers = [x['step'] for x in read_records(logdir / 'metrics.jsonl')]
    assert numbers == sorted(numbers)


def test_a_second_signal_ends_a_run_at_once(tmp_path, door, start_script):
    flags = ('--steps', '1e9', '--at', '20', '--wait', 'True')
    launcher = start_script(tmp_path / 'run', *flags)
    door.await_knock()
    processes = processes_of(launcher)
    launcher.send_signal(signal.SIGINT)
    door.await_knock()  # by an environment that is closed, while the agent does not end
    threading.Event().wait(REPEAT_KEY + 0.2)  # or it would be the same request
    launcher.send_signal(signal.SIGINT)
    assert launcher.wait(SECONDS) != 0
    await_ends(processes)


def test_a_signal_before_the_agent_is_made_leaves_a_fresh_start(
    tmp_path, door, start_script
):
    logdir = tmp_path / 'run'
    launcher = start_script(logdir, '--block', 'True')
    door.await_knock()
    launcher.send_signal(signal.SIGINT)
    assert launcher.wait(SECONDS) == 0
    assert not (logdir / 'ckpt' / 'agent').exists()
    assert start_script(logdir).wait(SECONDS) == 0
    check_finished(logdir)


def test_a_killed_launcher_leaves_no_process_behind(tmp_path, door, start_script):
    launcher = start_script(tmp_path / 'run', '--steps', '1e9', '--at', '20')
    door.await_knock()
    processes = processes_of(launcher)
    launcher.kill()
    launcher.wait()
    await_ends(processes)


def test_sockets_are_free_again_after_a_run(tmp_path):
    given = fixed_addresses()
    run_combined(tmp_path, **given)
    for address in given.values():
        port = int(address.rpartition(':')[2])
        assert f'@dreamer-{port}' not in Path('/proc/net/unix').read_text()
        socket.create_server(('localhost', port)).close()


def test_a_finished_run_says_so_and_goes_on_when_its_limit_is_raised(tmp_path, capfd):
    run_combined(tmp_path)
    capfd.readouterr()
    run_combined(tmp_path)
    assert f'The run in {tmp_path} is finished: 30' in capfd.readouterr().out
    run_combined(tmp_path, steps=400)
    committed = load_part_and_step(tmp_path / 'ckpt' / 'replay', 'replay')[1]
    assert 400 <= committed < 403
    assert load_part_and_step(tmp_path / 'ckpt' / 'agent', 'agent')[1] == committed


# Failing


@pytest.mark.parametrize(
    ('parts', 'messages'),
    [
        (
            {'make_env': bind(foreign.Env, fails_at=30)},
            ['ValueError: the simulator fell over', 'foreign.py', 'env'],
        ),
        (
            {'make_agent': bind(foreign.Agent, 3, foreign.fail)},
            ['The agent failed: ValueError: the loss is negative'],
        ),
        ({'make_agent': foreign.fail}, ['The agent failed: ValueError']),
        (
            {'make_replay': bind(foreign.Replay, fails_at=30)},
            ['The replay failed: ValueError: the list is full', 'foreign.py'],
        ),
        (
            {'make_logger': foreign.FailingLogger},
            ['The logger failed: OSError: no space left'],
        ),
    ],
    ids=['env', 'train', 'make', 'replay', 'logger'],
)
def test_the_first_failure_ends_the_run_and_is_shown(tmp_path, parts, messages):
    with pytest.raises(DreamerError) as info:
        run_combined(tmp_path, steps=1e9, max_restarts=0, **parts)
    for message in messages:
        assert message in str(info.value)


def test_without_restarts_a_killed_role_ends_the_run(tmp_path, door):
    logdir = tmp_path / 'run'
    knock = foreign.Knock(door.path)

    def kill_agent():
        os.kill(int(door.await_knock()), signal.SIGKILL)

    thread = threading.Thread(target=kill_agent)
    thread.start()
    with pytest.raises(RoleError, match='The agent .* failed: killed by signal 9'):
        run_combined(logdir, bind(foreign.Agent, 20, knock), steps=1e9, max_restarts=0)
    thread.join()


def test_an_agent_in_a_thread_raises_its_own_error(tmp_path):
    make_agent = bind(foreign.Agent, 3, foreign.fail)
    with pytest.raises(ValueError, match='the loss is negative'):
        run_combined(tmp_path, make_agent, agent_process=False)
