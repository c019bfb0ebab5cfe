"""Manifests of a run: valid for Kubernetes, and such that the roles find each other."""

import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from dreamerv3 import config as config_lib
from dreamerv3 import loops
from dreamerv3.commands import manifests
from embodied.core.errors import ConfigError
from embodied.run.parallel.settings import FIRST_EVAL_ENV
from embodied.transport import keys

FLAGS = {
    'configs': 'debug',
    'logdir': '/data/run',
    'kubernetes.name': 'pong',
    'kubernetes.image': 'dreamer:cuda',
    'kubernetes.claim': 'data',
    'kubernetes.env_cpus': 4,
    'run.envs': 10,
    'run.eval_envs': 2,
}


def write(folder, **changes):
    flags = [f'--{name}={value}' for name, value in {**FLAGS, **changes}.items()]
    return manifests.main([str(folder), *flags])


def read(path):
    return list(YAML(typ='safe', pure=True).load_all(path))


@pytest.fixture(scope='module')
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp('manifests')
    assert write(folder) == 0
    return folder


@pytest.fixture(scope='module')
def jobs(written):
    return roles(written, 'Job')


def roles(folder, kind):
    found = read(folder / 'run.yaml')
    return {x['metadata']['labels']['role']: x for x in found if x['kind'] == kind}


def arguments(job):
    (container,) = job['spec']['template']['spec']['containers']
    return container['args']


def validate(*files):
    command = shutil.which('kubernetes-validate', path=str(Path(sys.executable).parent))
    subprocess.run([command, '--strict', *files], check=True)


def test_the_schema_of_kubernetes_allows_them(written):
    validate(written / 'run.yaml', written / 'keys.yaml')


def test_a_replay_with_a_volume_of_its_own_is_a_stateful_set(tmp_path):
    volume = {'kubernetes.replay_gb': 200, 'kubernetes.replay_class': 'fast'}
    assert write(tmp_path, **volume) == 0
    validate(tmp_path / 'run.yaml')
    assert roles(tmp_path, 'Job').keys() == {'agent', 'logger', 'env'}
    replay = roles(tmp_path, 'StatefulSet')['replay']['spec']
    service = roles(tmp_path, 'Service')['replay']
    assert replay['serviceName'] == service['metadata']['name']
    assert service['spec']['clusterIP'] == 'None'
    labels = replay['template']['metadata']['labels']
    assert replay['selector']['matchLabels'] == service['spec']['selector'] == labels
    (claim,) = replay['volumeClaimTemplates']
    assert claim['spec']['resources']['requests']['storage'] == '200Gi'
    assert claim['spec']['storageClassName'] == 'fast'
    (container,) = replay['template']['spec']['containers']
    mounts = {x['name']: x['mountPath'] for x in container['volumeMounts']}
    config, _ = config_lib.resolve(container['args'][1:])
    assert config.replay.dir == mounts[claim['metadata']['name']]
    assert mounts['data'] == '/data'  # where its saves are


def test_no_server_runs_twice_at_a_time_and_all_may_write(jobs):
    for role in ('agent', 'replay', 'logger'):
        assert jobs[role]['spec']['podReplacementPolicy'] == 'Failed'
        assert jobs[role]['spec']['template']['spec']['securityContext']['fsGroup']


def test_each_role_is_a_job_whose_command_line_can_be_read(jobs):
    assert jobs.keys() == {'agent', 'replay', 'logger', 'env'}
    for role, job in jobs.items():
        script, *flags = arguments(job)
        assert script == f'parallel_{role}'
        config, _ = config_lib.resolve(flags)
        assert (
            config.batch_size == 4 and config.run.envs == 10
        )  # of the preset, of ours


def test_servers_listen_where_their_services_lead(written, jobs):
    services = [x for x in read(written / 'run.yaml') if x['kind'] == 'Service']
    ports = {x['metadata']['name']: x['spec']['ports'][0]['port'] for x in services}
    for role, job in jobs.items():
        config, _ = config_lib.resolve(arguments(job)[1:])
        for server, name in (('agent', 'actor'), ('replay', 'replay')):
            host, port = config.run[f'{name}_addr'].split(':')
            assert host == ('0.0.0.0' if server == role else f'pong-{server}')
            assert int(port) == ports[f'pong-{server}']
    for service in services:
        pod = jobs[service['metadata']['labels']['role']]['spec']['template']
        assert service['spec']['selector'].items() <= pod['metadata']['labels'].items()


def test_workers_are_numbered_by_the_index_of_their_job(jobs, monkeypatch):
    spec = jobs['env']['spec']
    assert (spec['completionMode'], spec['completions'], spec['parallelism']) == (
        'Indexed',
        4,
        4,
    )
    config, _ = config_lib.resolve(arguments(jobs['env'])[1:])
    firsts = []
    for index in range(4):
        monkeypatch.setenv('JOB_COMPLETION_INDEX', str(index))
        firsts.append(loops._first_env(config, loops.loop_args(config)))
    assert firsts == [0, 4, 8, FIRST_EVAL_ENV]


def test_workers_get_one_half_of_the_keys(written, jobs):
    (secret,) = read(written / 'keys.yaml')
    mode = stat.S_IMODE((written / 'keys.yaml').stat().st_mode)
    assert mode == 0o600
    halves = {
        name: keys.load(environ={keys.ENVIRONMENT: text})
        for name, text in secret['stringData'].items()
    }
    assert (
        halves['server'].server and halves['server'].client == halves['client'].client
    )
    assert halves['client'].server is None
    for role, job in jobs.items():
        (variable,) = job['spec']['template']['spec']['containers'][0]['env']
        source = variable['valueFrom']['secretKeyRef']
        assert source['name'] == secret['metadata']['name']
        assert source['key'] == ('client' if role == 'env' else 'server')


@pytest.mark.parametrize(
    ('name', 'value', 'message'),
    [
        ('kubernetes.name', 'Pong_1', 'small letters'),
        ('kubernetes.image', '', '--kubernetes.image'),
        ('logdir', '/elsewhere/run', 'below kubernetes.mount'),
        ('logdir', '/data/{timestamp}', 'fixed folder'),
        ('replay.dir', '/data/replay', 'Give one of them'),
    ],
)
def test_mistakes_are_refused(tmp_path, name, value, message):
    with pytest.raises(ConfigError, match=message):
        write(tmp_path, **{'kubernetes.replay_gb': 200, name: value})
