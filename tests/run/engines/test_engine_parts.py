"""Parts of the engines that need no cluster."""

import subprocess
import sys
import threading

import pytest

from dreamerv3 import config as config_lib
from dreamerv3 import engines
from embodied import transport
from embodied.core.errors import ConfigError, MissingExtraError
from embodied.run.parallel.engines.optional_packages import require
from embodied.run.parallel.engines.ray.cluster import Cluster, Pins
from embodied.run.parallel.engines.ray.keeper import Keeper
from embodied.run.parallel.engines.ray.places import Book
from embodied.run.parallel.engines.ray.resources import RayOptions
from embodied.run.parallel.settings import ParallelSettings

SECONDS = 60.0  # only against a test that hangs


def test_a_package_that_is_missing_is_named_with_its_extra():
    with pytest.raises(MissingExtraError, match=r'dreamer-parallel\[ray\]'):
        require('no_such_package', 'ray')


def test_engines_import_neither_ray_nor_submitit_nor_jax():
    code = (
        'import sys\n'
        'import dreamerv3.engines, embodied.run.parallel.engines.ray.engine\n'
        "assert not {'ray', 'submitit', 'jax'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, '-c', code], check=True)


def test_a_book_is_complete_when_all_servers_have_an_address():
    book, told, found = Book(['actor', 'replay']), [], []
    book.follow(told.append)
    book.publish('actor', 'a:1')
    wait = lambda: found.append(book.await_all(lambda: False))
    thread = threading.Thread(target=wait)
    thread.start()
    book.publish('replay', 'b:2')
    thread.join(SECONDS)
    assert found[0].addresses == {'actor': 'a:1', 'replay': 'b:2'}
    book.publish('replay', 'c:3')
    assert [places.number for places in told] == [1, 2, 3]
    assert told[-1].addresses['replay'] == 'c:3'


def test_whoever_is_cancelled_waits_for_no_address():
    book, cancelled = Book(['actor']), threading.Event()
    thread = threading.Thread(target=book.await_all, args=(cancelled.is_set,))
    thread.start()
    cancelled.set()
    book.wake()
    thread.join(SECONDS)
    assert not thread.is_alive()


def test_a_node_that_does_not_see_the_folder_is_refused(tmp_path):
    witness = tmp_path / 'witness'
    witness.write_text('of the launcher')
    Keeper().check_folders({str(witness): 'of the launcher'})
    with pytest.raises(ConfigError, match='--ray.storage pinned'):
        Keeper().check_folders({str(witness): 'of another launcher'})
    with pytest.raises(ConfigError, match='not the same folder'):
        Keeper().check_folders({str(tmp_path / 'missing'): 'x'})


@pytest.mark.parametrize('host', ['localhost', '127.0.0.1'])
def test_an_address_without_a_cluster_is_refused_at_once(tmp_path, host):
    flags = ('--engine', 'ray', '--ray.address', f'{host}:{transport.free_port()}')
    options = RayOptions.read(resolve(*flags).ray)
    with pytest.raises(ConfigError, match='ray start --head'):
        Cluster(options, tmp_path)


def test_pins_last_from_one_session_to_the_next(tmp_path):
    Pins(tmp_path).add('replay', 'node7')
    assert Pins(tmp_path).find('replay') == 'node7'
    assert Pins(tmp_path).find('agent') is None


def resolve(*flags):
    return config_lib.resolve(flags)[0]


def test_only_parallel_runs_have_an_engine():
    engines.check(resolve('--script', 'parallel', '--engine', 'ray'))
    with pytest.raises(ConfigError, match='train has none'):
        engines.check(resolve('--script', 'train', '--engine', 'ray'))


@pytest.mark.parametrize(
    'flags',
    [
        ('--run.transport', 'portal'),
        ('--run.agent_process', 'False'),
        ('--run.remote_envs', 'True'),
    ],
    ids=' '.join,
)
def test_what_ray_cannot_do_is_refused_before_anything_starts(tmp_path, flags):
    from dreamerv3.main import loop_args

    config = resolve('--engine', 'ray', '--logdir', str(tmp_path), *flags)
    engine = engines.make_engine(config)
    with pytest.raises(ConfigError, match='does not go with --engine ray'):
        engine.check(ParallelSettings.read(loop_args(config)))
