"""What replicas need to be told, where they keep things, how they differ."""

from pathlib import Path

import numpy as np
import pytest

from dreamerv3 import config as config_lib
from dreamerv3 import factories
from dreamerv3.replica_options import check_replicas, replica_folder
from embodied.core.errors import ConfigError

GOOD = {
    'script': 'parallel',
    'logdir': '/runs/one',
    'replicas': 2,
    'replica': 1,
    'jax.coordinator_address': 'host:7000',
}


def resolve(**changes):
    options = {**GOOD, **changes}
    return config_lib.resolve([f'--{k}={v}' for k, v in options.items()])[0]


def test_replicas_that_can_find_each_other_are_accepted():
    check_replicas(resolve())
    check_replicas(resolve(script='train', replicas=1, replica=5))
    check_replicas(resolve(clock_addr='host:7100'))
    plain = {'random_agent': True, 'jax.coordinator_address': ''}
    check_replicas(resolve(clock_addr='host:7100', **plain))


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'script': 'train'}, 'only parallel and parallel_agent have replicas'),
        ({'replica': 2}, 'replica=2 must be between 0 and 1'),
        ({'replica': -1}, 'replica=-1 must be between 0 and 1'),
        ({'replicas': 0}, 'replicas=0 must be at least 1'),
        ({'logdir': 'run-{timestamp}'}, 'the same --logdir'),
        ({'jax.coordinator_address': ''}, "coordinator_address='' must be host:port"),
        ({'jax.coordinator_address': 'host'}, "'host' must be host:port"),
        ({'clock_addr': 'host'}, "clock_addr='host' must be host:port"),
        ({'random_agent': True}, "clock_addr='' must be host:port"),
    ],
    ids=str,
)
def test_replicas_that_could_not_work_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        check_replicas(resolve(**change))


@pytest.mark.parametrize(
    ('replica', 'replicas', 'folder'),
    [(0, 1, '/run'), (3, 1, '/run'), (0, 4, '/run'), (3, 4, '/run/replica3')],
)
def test_replica_0_has_the_folder_of_the_run_and_others_one_in_it(
    replica, replicas, folder
):
    config = resolve(replica=replica, replicas=replicas)
    assert Path(replica_folder('/run', config)) == Path(folder)


def test_replicas_have_other_environments_but_a_run_alone_has_those_of_replica_0():
    def first_image(replica, replicas):
        env = factories.make_env(resolve(replica=replica, replicas=replicas), 0)
        action = {k: space.sample() for k, space in env.act_space.items()}
        images = [env.step({**action, 'reset': True})['image'] for _ in range(4)]
        env.close()
        return np.stack(images)

    alone = first_image(0, 1)
    np.testing.assert_array_equal(alone, first_image(0, 2))
    assert not np.array_equal(alone, first_image(1, 2))
