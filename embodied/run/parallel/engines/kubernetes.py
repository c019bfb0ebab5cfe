"""Kubernetes: the roles of a run as manifests, one Job or StatefulSet each.

Roles are Jobs, because they end with the run; a failed pod is started again in place.
Only a replay with a volume of its own is a StatefulSet, which keeps the two together.
Servers are found by the name of their Service, which stays when a pod moves. Workers
are the pods of an indexed Job: `dreamer parallel_env` reads JOB_COMPLETION_INDEX.
"""

import dataclasses
import json
from typing import Any, NamedTuple

from ....transport import keys

__all__ = [
    'DISK',
    'INDEX',
    'SERVERS',
    'KubernetesOptions',
    'Pod',
    'manifests',
    'secret',
]

INDEX = 'JOB_COMPLETION_INDEX'  # variable that Kubernetes sets in indexed jobs
SERVERS = {'agent': 7000, 'replay': 7001, 'logger': 7002}  # ports
DISK = '/disk'  # where a volume of its own is mounted
RETRIES = 1000  # of the pods of a job; Kubernetes waits longer each time
GROUP = 1000  # that may write to volumes; the user of our image joins it
GRACE = 10  # seconds for a pod to end after the grace of the run


class KubernetesOptions(NamedTuple):
    """The group `kubernetes` of the config."""

    name: str
    image: str
    claim: str
    mount: str
    replay_gb: float
    replay_class: str
    gpus: int
    cpus: float
    gb: float
    env_cpus: float
    env_gb: float


class Pod(NamedTuple):
    """One role: the arguments of its command, its copies, and their resources."""

    role: str
    args: list[str]
    cpus: float
    gb: float
    gpus: int = 0
    copies: int = 1
    disk_gb: float = 0.0  # of a volume of its own


def manifests(
    pods: list[Pod], options: KubernetesOptions, grace: float
) -> list[dict[str, Any]]:
    """Services, Jobs and StatefulSets, to be applied in any order."""
    services = [_service(pod, options) for pod in pods if pod.role in SERVERS]
    return [*services, *(_workload(pod, options, grace) for pod in pods)]


def secret(pair: keys.Keys, options: KubernetesOptions) -> dict[str, Any]:
    """The keys of the run: all of them for servers, one half for workers."""
    client = keys.Keys(client=pair.client)
    halves = {'server': pair, 'client': client}
    return {
        'apiVersion': 'v1',
        'kind': 'Secret',
        'metadata': _metadata('keys', options),
        'stringData': {
            name: json.dumps(dataclasses.asdict(half)) for name, half in halves.items()
        },
    }


def _metadata(role: str, options: KubernetesOptions) -> dict[str, Any]:
    return {'name': f'{options.name}-{role}', 'labels': _labels(role, options)}


def _labels(role: str, options: KubernetesOptions) -> dict[str, str]:
    return {'app': 'dreamer-parallel', 'run': options.name, 'role': role}


def _service(pod: Pod, options: KubernetesOptions) -> dict[str, Any]:
    port = {'name': 'zmq', 'port': SERVERS[pod.role], 'protocol': 'TCP'}
    # The Service of a StatefulSet has no address: its name is that of the pod.
    headless = {'clusterIP': 'None'} if pod.disk_gb else {}
    return {
        'apiVersion': 'v1',
        'kind': 'Service',
        'metadata': _metadata(pod.role, options),
        'spec': {**headless, 'selector': _labels(pod.role, options), 'ports': [port]},
    }


def _workload(pod: Pod, options: KubernetesOptions, grace: float) -> dict[str, Any]:
    template = {
        'metadata': {'labels': _labels(pod.role, options)},
        'spec': {
            'terminationGracePeriodSeconds': int(grace) + GRACE,
            'containers': [_container(pod, options)],
            **_volumes(pod, options),
        },
    }
    return (_stateful_set if pod.disk_gb else _job)(pod, options, template)


def _job(
    pod: Pod, options: KubernetesOptions, template: dict[str, Any]
) -> dict[str, Any]:
    template['spec']['restartPolicy'] = 'OnFailure'
    kind: dict[str, Any] = {
        'completionMode': 'Indexed',
        'completions': pod.copies,
        'parallelism': pod.copies,
    }
    if pod.role in SERVERS:  # Two at a time would write to the same folder.
        kind = {'podReplacementPolicy': 'Failed'}
    return {
        'apiVersion': 'batch/v1',
        'kind': 'Job',
        'metadata': _metadata(pod.role, options),
        'spec': {**kind, 'backoffLimit': RETRIES, 'template': template},
    }


def _stateful_set(
    pod: Pod, options: KubernetesOptions, template: dict[str, Any]
) -> dict[str, Any]:
    metadata, labels = _metadata(pod.role, options), _labels(pod.role, options)
    claim = {
        'accessModes': ['ReadWriteOnce'],
        'resources': {'requests': {'storage': f'{pod.disk_gb:g}Gi'}},
    }
    if options.replay_class:
        claim['storageClassName'] = options.replay_class
    return {
        'apiVersion': 'apps/v1',
        'kind': 'StatefulSet',
        'metadata': metadata,
        'spec': {
            'serviceName': metadata['name'],
            'replicas': 1,
            'selector': {'matchLabels': labels},
            'template': template,
            'volumeClaimTemplates': [
                {'metadata': {'name': 'disk', 'labels': labels}, 'spec': claim}
            ],
        },
    }


def _container(pod: Pod, options: KubernetesOptions) -> dict[str, Any]:
    serves = pod.role in SERVERS
    source = {'name': f'{options.name}-keys', 'key': 'server' if serves else 'client'}
    wanted = {'cpu': f'{pod.cpus:g}', 'memory': f'{pod.gb:g}Gi'}
    limits = {'nvidia.com/gpu': str(pod.gpus)} if pod.gpus else {}
    container: dict[str, Any] = {
        'name': pod.role,
        'image': options.image,
        'args': pod.args,
        'env': [{'name': keys.ENVIRONMENT, 'valueFrom': {'secretKeyRef': source}}],
        'resources': {'requests': {**wanted, **limits}, 'limits': limits},
    }
    if serves:
        container['ports'] = [{'containerPort': SERVERS[pod.role]}]
        container['volumeMounts'] = [{'name': 'data', 'mountPath': options.mount}]
    if pod.disk_gb:
        container['volumeMounts'] += [{'name': 'disk', 'mountPath': DISK}]
    return container


def _volumes(pod: Pod, options: KubernetesOptions) -> dict[str, Any]:
    if pod.role not in SERVERS:
        return {}
    claim = {'claimName': options.claim}
    return {
        'volumes': [{'name': 'data', 'persistentVolumeClaim': claim}],
        'securityContext': {
            'fsGroup': GROUP,
            'fsGroupChangePolicy': 'OnRootMismatch',
        },
    }
