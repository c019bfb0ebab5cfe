"""Parts of the engines that need no cluster."""

import asyncio
import subprocess
import sys

import pytest

from dreamerv3 import config as config_lib
from dreamerv3 import engines
from embodied import transport
from embodied.core.errors import ConfigError, MissingExtraError
from embodied.run.parallel.engines.optional_packages import require
from embodied.run.parallel.engines.ray.address_registry import AddressRegistry
from embodied.run.parallel.engines.ray.cluster import Cluster, Pins
from embodied.run.parallel.engines.ray.keeper import Keeper
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


def ask(registry, *calls):
    """The answers of a registry to (method, *args) calls that are made at once."""

    async def gather():
        return await asyncio.gather(
            *(getattr(registry, m)(*args) for m, *args in calls)
        )

    return asyncio.run(asyncio.wait_for(gather(), SECONDS))


def test_addresses_are_waited_for_and_the_newest_one_is_found():
    registry = AddressRegistry()
    find = ('find', 'replay')
    published = ask(registry, find, find, ('publish', 'replay', 'a:1'))
    assert published == ['a:1', 'a:1', None]
    ask(registry, ('publish', 'replay', 'b:2'))
    ask(registry, ('withdraw', 'replay', 'a:1'))  # of a process that ends late
    assert ask(registry, find) == ['b:2']


def test_an_address_that_was_withdrawn_is_not_found_any_more():
    registry = AddressRegistry()
    ask(registry, ('publish', 'replay', 'a:1'))
    ask(registry, ('withdraw', 'replay', 'a:1'))
    again = ('publish', 'replay', 'b:2')
    assert ask(registry, ('find', 'replay'), again) == ['b:2', None]


def test_a_launcher_attends_until_it_leaves():
    assert ask(AddressRegistry(), ('attend', 'x'), ('leave', 'x')) == [None, None]
    assert ask(AddressRegistry(), ('leave', 'x'), ('attend', 'x')) == [None, None]


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


def test_pins_last_from_one_launcher_to_the_next(tmp_path):
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
    from dreamerv3.loops import loop_args

    config = resolve('--engine', 'ray', '--logdir', str(tmp_path), *flags)
    engine = engines.make_engine(config)
    with pytest.raises(ConfigError, match='does not go with --engine ray'):
        engine.check(ParallelSettings.read(loop_args(config)))
