"""Settings of the loops: what must be given, what is completed, what is refused."""

import dataclasses
from pathlib import Path

import elements
import pytest

from dreamerv3 import config as config_lib
from embodied.core.errors import ConfigError
from embodied.replay import Replay
from embodied.run.parallel.settings import ParallelSettings
from embodied.run.shared.settings import Settings
from embodied.run.single.offline import OfflineSettings

NOT_OPTIONS = {
    'task',
    'run_id',
    'logdir',
    'vector_envs',
    'timeline_plan',
}  # not known without a run

GIVEN = {'logdir': '~/logdir/run', 'batch_size': 16, 'batch_length': 64}


def read(**changes):
    return Settings.read(elements.Config({**GIVEN, **changes}))


def test_numbers_and_paths_get_their_types():
    settings = read(steps=1e4, duration=0)
    assert settings.steps == 10_000
    assert isinstance(settings.steps, int)
    assert isinstance(settings.duration, float)
    assert settings.logdir == Path.home() / 'logdir' / 'run'


def test_options_of_our_own_have_defaults_and_can_be_given():
    assert (read().eval_every, read().env_processes, read().keep) == (10_000, True, 1)
    assert read(keep=3, eval_every=5).keep == 3


def test_defaults_are_those_of_the_options():
    options = config_lib.resolve([])[0].flat
    offline = [x for x in dataclasses.fields(OfflineSettings) if x.name == 'updates']
    checked = set()
    for field in (*dataclasses.fields(ParallelSettings), *offline):
        names = {field.name, f'run.{field.name}'} & options.keys()
        if field.name in NOT_OPTIONS:
            continue
        (name,) = names
        assert field.default == options[name], name
        checked.add(name)
    unchecked = {x for x in options if x.startswith('run.')} - checked
    assert unchecked == set()


def test_keys_that_loops_do_not_read_are_left_alone():
    read(actor_addr='tcp://localhost:1', usage={'psutil': True})


@pytest.mark.parametrize('key', sorted(GIVEN))
def test_a_missing_key_is_named(key):
    args = elements.Config({k: v for k, v in GIVEN.items() if k != key})
    with pytest.raises(ConfigError, match=f'lack {key}'):
        Settings.read(args)


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'envs': 0}, 'envs=0 must be at least 1'),
        ({'steps': -1}, 'steps=-1 must be at least 0'),
        ({'batch_size': 1.5}, 'batch_size=1.5 must be of type int'),
        ({'timeline': 'nan'}, 'timeline=nan must be at least 0'),
        ({'duration': 'long'}, "duration='long' must be of type float"),
        ({'keep': 0}, 'keep=0 must be at least 1'),
        ({'debug': 'False'}, "debug='False' must be of type bool"),
    ],
)
def test_impossible_values_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        read(**change)


@pytest.mark.parametrize(
    ('change', 'minimum'),
    [
        ({}, 16 * 65),
        ({'envs': 20}, 20 * 64 + 1),
        ({'envs': 64}, 4097),
        ({'consec_train': 2, 'replay_context': 0}, 16 * 128),
    ],
)
def test_training_waits_for_a_batch_and_a_whole_sequence(change, minimum):
    assert read(**change).minimum(replay=object()) == minimum


def test_a_replay_that_tells_its_length_decides_how_long_sequences_are():
    replay = Replay(length=33)
    assert read(envs=20).minimum(replay) == 20 * 32 + 1
    assert read(eval_envs=3).eval_minimum(replay) == 3 * 32 + 1
    assert read(eval_envs=0).eval_minimum(replay) == 33


@pytest.mark.parametrize(
    ('env_processes', 'debug', 'parallel'),
    [(True, False, True), (True, True, False), (False, False, False)],
)
def test_debug_keeps_environments_inside(env_processes, debug, parallel):
    assert read(env_processes=env_processes, debug=debug).parallel == parallel
