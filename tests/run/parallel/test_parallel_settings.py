"""What a distributed run is told: options, addresses, factories."""

import functools

import cloudpickle
import elements
import pytest

from embodied.core.errors import ConfigError
from embodied.run.parallel import pickling as factories
from embodied.run.parallel.engines import ports as addresses
from embodied.run.parallel.settings import FIRST_EVAL_ENV, ParallelSettings, WorkerPlan
from embodied.transport import keys

GIVEN = {  # exactly the keys that jobs from elsewhere have
    'actor_addr': 'localhost:{auto}',
    'replay_addr': 'localhost:{auto}',
    'logger_addr': 'localhost:{auto}',
    'actor_batch': -1,
    'actor_threads': 1,
    'agent_process': True,
    'remote_envs': False,
    'remote_replay': False,
    'envs': 4,
    'eval_envs': 2,
    'eval_eps': 1,
    'steps': 1e4,
    'duration': 0,
    'train_ratio': 32,
    'batch_size': 16,
    'batch_length': 64,
    'report_length': 32,
    'consec_train': 1,
    'consec_report': 1,
    'replay_context': 1,
    'log_every': 10,
    'report_every': 300,
    'save_every': 60,
    'report_batches': 1,
    'episode_timeout': 180,
    'from_checkpoint': '',
    'from_checkpoint_regex': '.*',
    'usage': {'psutil': True, 'gc': False},
    'logdir': 'logdir/run',
    'replica': 0,
    'replicas': 1,
    'debug': False,
}


def read(**changes):
    return ParallelSettings.read(elements.Config({**GIVEN, **changes}))


def test_known_keys_are_enough_and_ours_have_defaults():
    settings = read()
    assert (settings.transport, settings.grace) == ('native', 60.0)
    assert settings.usage is True
    assert read(usage={'psutil': False}).usage is False


NEEDED = ('logdir', 'batch_size', 'batch_length')


def test_few_keys_are_enough():
    settings = ParallelSettings.read({key: GIVEN[key] for key in NEEDED})
    assert (settings.actor_addr, settings.envs) == ('localhost:{auto}', 16)


def test_a_full_policy_batch_fits_if_nothing_says_how_many_environments_there_are():
    settings = ParallelSettings.read({'actor_batch': 48}, needed=())
    assert (settings.batch_rows, settings.envs) == (48, 48)


@pytest.mark.parametrize('key', NEEDED)
def test_a_missing_key_is_named(key):
    args = elements.Config({k: v for k, v in GIVEN.items() if k != key})
    with pytest.raises(ConfigError, match=f'lack {key}'):
        ParallelSettings.read(args)


def test_the_former_name_of_the_transport_gives_a_note():
    with pytest.warns(FutureWarning, match='run.transport=zmq is called .*=native'):
        assert read(transport='zmq').transport == 'native'


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'envs': 0}, 'envs=0 must be at least 1'),
        ({'eval_envs': -1}, 'eval_envs=-1 must be at least 0'),
        ({'actor_batch': 5}, 'run.actor_batch=5 exceeds run.envs=4: a full batch'),
        ({'actor_threads': 0}, 'actor_threads=0 must be at least 1'),
        ({'transport': 'grpc'}, "run.transport='grpc' .* native, portal"),
        ({'replicas': 0}, 'replicas=0 must be at least 1'),
        ({'agent_process': 'yes'}, "agent_process='yes' must be of type bool"),
    ],
)
def test_impossible_values_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        read(**change)


@pytest.mark.parametrize(
    ('envs', 'actor_batch', 'rows'), [(4, -1, 4), (1, -1, 1), (4, 3, 3), (5, 0, 5)]
)
def test_size_of_policy_calls_is_chosen_unless_given(envs, actor_batch, rows):
    assert read(envs=envs, actor_batch=actor_batch).batch_rows == rows


def test_workers_share_environments_but_not_training_and_evaluation():
    assert read(envs=5, eval_envs=2, envs_per_worker=3).workers == [
        WorkerPlan((0, 1, 2), False),
        WorkerPlan((3, 4), False),
        WorkerPlan((FIRST_EVAL_ENV, FIRST_EVAL_ENV + 1), True),
    ]
    assert len(read(envs_per_worker=1).workers) == 6


def test_another_machine_runs_the_environments_that_join():
    joined = read(envs=6, eval_envs=2, envs_per_worker=3).plan_workers(first=2)
    assert joined == [WorkerPlan((2, 3, 4), False), WorkerPlan((5,), False)]


def test_environments_on_the_device_need_no_worker_but_joined_ones_do():
    settings = read(envs=6, eval_envs=2, device_steps=8, envs_per_worker=2)
    assert settings.workers == [WorkerPlan((FIRST_EVAL_ENV, FIRST_EVAL_ENV + 1), True)]
    assert [plan.envids for plan in settings.plan_workers(first=5)] == [(5,)]


def test_thousands_of_members_fit_into_one_policy_call():
    assert read(envs=4096, envs_per_worker=4096).rows_limit == 4096


@pytest.mark.parametrize('envs', [1, 3, 16, 1000])
def test_each_environment_has_exactly_one_worker(envs):
    plans = read(envs=envs, eval_envs=3).workers
    for is_eval, count in ((False, envs), (True, 3)):
        own = [plan for plan in plans if plan.is_eval == is_eval]
        assert [i for plan in own for i in plan.indices] == list(range(count))


def test_a_job_with_more_environments_shares_no_number_with_those_for_evaluation():
    run, joined = read(envs=4, eval_envs=3), read(envs=64, eval_envs=3)
    numbers = lambda plans, is_eval: {
        i for plan in plans if plan.is_eval == is_eval for i in plan.envids
    }
    evaluation = numbers(run.workers, True)
    assert len(evaluation) == 3
    assert evaluation == numbers(joined.workers, True)
    assert not evaluation & numbers(joined.plan_workers(first=4), False)
    names = {plan.name for plan in run.workers}
    assert not names & {plan.name for plan in joined.plan_workers(first=4)}


def test_free_ports_are_filled_in_and_differ():
    resolved = addresses.resolve(read(logger_addr='localhost:4321'))
    assert resolved['logger_addr'] == 'localhost:4321'
    ports = {address.rpartition(':')[2] for address in resolved.values()}
    assert len(ports) == 3
    assert all(port.isdecimal() for port in ports)


def test_given_addresses_stay_and_are_told_from_chosen_ones():
    fixed = {'actor_addr': ':1000', 'replay_addr': ':1001', 'logger_addr': ':1002'}
    assert addresses.resolve(read(**fixed)) == fixed
    settings = read(replay_addr='localhost:1001')
    assert not addresses.is_replaceable('tcp://127.0.0.1:1001', settings)
    assert addresses.is_replaceable('tcp://127.0.0.1:1003', settings)
    assert not addresses.is_replaceable('', settings)


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'remote_envs': True}, r'run.actor_addr=localhost:\{auto\} .*remote_envs'),
        ({'remote_replay': True}, r'run.replay_addr=.*remote_replay'),
        (
            {'remote_replay': True, 'replay_addr': 'localhost:4000'},
            r'run.logger_addr=.*remote_replay',
        ),
        ({'replay_addr': 'somewhere'}, "'somewhere' is not an address"),
        (
            {'replay_addr': 'localhost:4000', 'actor_addr': 'localhost:4000'},
            'run.replay_addr=localhost:4000 and run.actor_addr have the same port',
        ),
        ({'actor_addr': '10.0.0.1:4000'}, 'No keys in .*`dreamer keys'),
        (
            {'actor_addr': '10.0.0.1:4000', 'transport': 'portal'},
            'portal cannot authenticate clients',
        ),
    ],
)
def test_addresses_that_no_client_could_find_are_refused(tmp_path, change, message):
    with pytest.raises(ConfigError, match=message):
        addresses.check(read(logdir=str(tmp_path), **change))


def test_addresses_of_other_machines_need_keys(tmp_path):
    keys.create(tmp_path / 'keys')
    addresses.check(read(logdir=str(tmp_path), actor_addr='10.0.0.1:4000'))


def test_factories_arrive_as_callables_whatever_they_came_as():
    make = functools.partial(max, 3)
    for form in (make, cloudpickle.dumps(make), factories.pack(make)):
        assert factories.unpack(form)(2) == 3
        assert factories.unpack(factories.pack(form))(5) == 5


def test_bytes_of_another_python_are_refused():
    packed = factories.pack(lambda: 1)
    other = packed.replace(
        factories.HEADER + factories.VERSION, factories.HEADER + b'3.8'
    )
    assert other != packed
    with pytest.raises(
        ConfigError, match=r'packed by Python 3\.8, this is Python 3\.1'
    ):
        factories.unpack(other)
