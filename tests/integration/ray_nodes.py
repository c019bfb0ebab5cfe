"""A Ray cluster on this machine, each of whose nodes can be killed."""

import contextlib
import os

import pytest
from ray.cluster_utils import Cluster

ATTEMPTS = 3  # Ray gives up after 15 seconds, which a busy machine may need
OBJECTS = 100_000_000  # bytes for objects of Ray, of which we have none


@contextlib.contextmanager
def cluster(*nodes):
    """Starts nodes with these resources, the first of which is the head; they are named
    node0, node1 and so on. The address is in RAY_ADDRESS meanwhile."""
    for attempt in range(ATTEMPTS):
        made = Nodes()
        try:
            for resources in nodes:
                made.add(**resources)
            break
        except Exception as error:  # noqa: BLE001 (of many kinds, none of them ours)
            made.close()
            if attempt == ATTEMPTS - 1:
                pytest.skip(f'Ray itself does not start here: {error}')
    try:
        os.environ['RAY_ADDRESS'] = made.address
        yield made
    finally:
        del os.environ['RAY_ADDRESS']
        made.close()


class Nodes:
    def __init__(self):
        self._cluster = Cluster()
        self._nodes = {}

    @property
    def address(self):
        return self._cluster.address

    def add(self, **resources):
        """Starts one more; returns its name."""
        name = f'node{len(self._nodes)}'
        self._nodes[name] = self._cluster.add_node(
            num_cpus=1,
            resources=resources,
            node_name=name,
            include_dashboard=False,
            object_store_memory=OBJECTS,
        )
        return name

    def kill(self, name):
        """With all that runs on it, and without a word to the others."""
        self._cluster.remove_node(self._nodes[name], allow_graceful=False)

    def close(self):
        self._cluster.shutdown()
