"""Runs on Ray clusters of this machine, whose roles and nodes are killed."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import fault_parts
import psutil
import pytest
import ray_nodes
from faults import FaultyRun, check_folder, check_ratio

# Ray forks to start its nodes, which JAX warns of; what was forked calls exec at once.
pytestmark = pytest.mark.filterwarnings(r'ignore:os.fork\(\) was called')

SCRIPT = Path(__file__).parents[1] / 'ray_parts.py'
RATIO = 64.0
SECONDS = 60.0  # only against a test that hangs
STARTED = ('agent', 'replay', 'logger', 'env0', 'env2')


def start(logdir, *flags):
    return FaultyRun(logdir, *flags, script=SCRIPT)


def homes(run):
    """Nodes by role, where they were placed last."""
    placed = [event for event in run.events() if event['event'] == 'placed']
    return {event['role']: event['node'] for event in placed}


def await_all(run, since=0):
    for role in STARTED:
        run.await_running(role, since)
    run.await_steps()


def test_roles_on_a_node_come_back_at_other_addresses(tmp_path):
    with ray_nodes.cluster({}), start(tmp_path) as run:
        await_all(run)
        for role in ('replay', 'agent'):
            run.await_running(role, since=run.kill(role))
            run.await_steps()
        environments_join(run)
        status = json.loads((tmp_path / 'status.json').read_text())
        nodes = {role['node'] for role in status['roles'].values()}
        assert nodes - {''} == {'node0'}, 'there is only one node'
        run.interrupt()
        assert run.wait() == 0, run.log
    check_folder(tmp_path)
    check_ratio(tmp_path, RATIO)
    assert set(homes(run).values()) == {'node0'}
    assert (tmp_path / 'keys' / 'client.json').exists()


def environments_join(run):
    """Two more than the run was started with."""
    streams = set(fault_parts.acknowledged(run.logdir)['stream'])
    flags = ('--role', 'envs', '--envs', '6', '--first_env', '4')
    command = [sys.executable, str(SCRIPT), str(run.logdir), *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as joined:
        run.await_new_streams(streams, 2)
        joined.send_signal(signal.SIGINT)
        assert joined.wait() == 0


@pytest.mark.long
def test_nodes_with_environments_and_with_replay_are_lost_and_one_joins(tmp_path):
    nodes = ({'agent': 1, 'logger': 1}, {'env': 1}, {'replay': 1})
    flags = ('--homes', 'agent,logger,env,replay')
    with ray_nodes.cluster(*nodes) as cluster, start(tmp_path, *flags) as run:
        await_all(run)
        assert homes(run)['env0'] == 'node1' and homes(run)['replay'] == 'node2'
        for lost, resource in (('node1', 'env'), ('node2', 'replay')):
            before = len(run.events())
            cluster.kill(lost)
            away = [role for role, node in homes(run).items() if node == lost]
            new = cluster.add(**{resource: 1})
            for role in away:
                run.await_running(role, before)
                assert homes(run)[role] == new
            run.await_steps()
        run.interrupt()
        assert run.wait() == 0, run.log
    check_folder(tmp_path)
    check_ratio(tmp_path, RATIO)


@pytest.mark.long
def test_no_role_outlives_a_killed_launcher_and_the_same_command_goes_on(tmp_path):
    with ray_nodes.cluster({}):
        with start(tmp_path) as run:
            await_all(run)
            roles = [psutil.Process(run.pid(role)) for role in STARTED]
            run.launcher.kill()
            _, alive = psutil.wait_procs(roles, SECONDS)
            assert alive == []
        with start(tmp_path, '--steps', str(run.stored + 500)) as run:
            assert run.wait() == 0, run.log
    check_folder(tmp_path)


@pytest.mark.long
def test_pinned_data_is_not_left_behind_with_its_node(tmp_path):
    nodes = ({'agent': 1, 'logger': 1, 'env': 1}, {'replay': 1})
    flags = ('--homes', 'agent,logger,env,replay', '--storage', 'pinned')
    with ray_nodes.cluster(*nodes) as cluster:
        with start(tmp_path, *flags) as run:
            await_all(run)
            cluster.add(replay=1)
            cluster.kill('node1')
            assert run.wait() != 0
            assert 'keeps its data on the node node1' in run.log
        with start(tmp_path, *flags) as run:
            assert run.wait() != 0
            assert 'Bring the node back' in run.log
