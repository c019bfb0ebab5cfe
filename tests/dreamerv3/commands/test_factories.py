import contextlib
import functools
import io
import os
import pickle
import subprocess
import sys

import cloudpickle
import numpy as np
import psutil
import pytest
from rich.console import Console

import embodied
from dreamerv3 import config as config_lib
from dreamerv3 import factories, sinks
from embodied.core.errors import ConfigError
from embodied.logging import read_records
from embodied.run.parallel.supervision.status import StatusFile


def resolve(line=''):
    return config_lib.resolve(['--configs', 'tiny', *line.split()])[0]


def observe(env, steps=60):
    """Rows of pixels along an episode after the other, with the same actions."""
    rows = [env.step({'action': 1, 'reset': i == 0})['image'] for i in range(steps)]
    return np.stack(rows)


def fill(replay, config, steps=300, worker=0):
    env = factories.make_env(config, 0)
    agent = embodied.RandomAgent(env.obs_space, env.act_space, seed=0)
    act = {'reset': True, 'action': np.int32(0)}
    for _ in range(steps):
        obs = env.step(act)
        batch = {k: np.asarray(v)[None] for k, v in obs.items()}
        act = {k: v[0] for k, v in agent.policy((), batch)[1].items()}
        replay.add({**obs, **act}, worker)
        act['reset'] = bool(obs['is_last'])


def test_every_environment_has_a_seed_of_its_own():
    config = resolve()
    views = [observe(factories.make_env(config, i)) for i in range(3)]
    views += [observe(factories.make_env(config, i, mode='eval')) for i in range(3)]
    views += [observe(factories.make_env(resolve('--seed 1'), 0))]
    for i, first in enumerate(views):
        for second in views[i + 1 :]:
            assert (first != second).any()


def test_environments_repeat_with_the_same_seed():
    config = resolve('--seed 7')
    first, second = (observe(factories.make_env(config, 4)) for _ in range(2))
    assert (first == second).all()


def test_environment_gets_the_options_of_its_suite():
    env = factories.make_env(resolve('--env.toy.size 24 --env.toy.board 12'), 0)
    assert env.obs_space['image'].shape == (24, 24, 3)
    env = factories.make_env(resolve('--task dummy_disc --env.dummy.size 8'), 0)
    assert env.obs_space['image'].shape == (8, 8, 3)


@pytest.mark.parametrize(
    'line, mode, length, capacity',
    [
        ('', 'train', 16 + 1, 100_000),
        ('--consec_train 3', 'train', 3 * 16 + 1, 100_000),
        ('--report_length 8 --consec_report 2', 'eval', 2 * 8 + 1, 10_000),
        ('--replay_context 0 --replay.size 500', 'eval', 16, 50),
        ('--replay_context 4 --batch_length 32', 'train', 36, 100_000),
    ],
)
def test_replay_keeps_sequences_for_its_mode(line, mode, length, capacity):
    config = resolve(f'{line} --replay.online False')
    replay = factories.make_replay(config, 'replay', mode)
    assert replay.length == length
    if capacity <= 100:
        fill(replay, config, steps=4 * capacity)
        assert length <= replay.stats()['steps'] <= 2 * capacity


def test_replays_draw_from_different_seeds():
    config = resolve('--replay.online False --report_length 16')
    replays = [factories.make_replay(config, 'x', mode) for mode in ('train', 'eval')]
    replays.append(factories.make_replay(resolve('--seed 2'), 'x', 'eval'))
    draws = []
    for replay in replays:
        fill(replay, config)
        draws.append(replay.sample(8, 'eval')['image'])
    assert (draws[0] != draws[1]).any()
    assert (draws[1] != draws[2]).any()


@pytest.mark.parametrize(
    'fracs', [(1, 0, 0), (0, 1, 0), (0, 0, 1), (0.5, 0.3, 0.2)], ids=str
)
def test_replay_draws_by_any_mixture(fracs):
    names = ('uniform', 'priority', 'recency')
    shares = zip(names, fracs, strict=True)
    line = ' '.join(f'--replay.fracs.{name} {share}' for name, share in shares)
    config = resolve(f'{line} --replay.online False')
    replay = factories.make_replay(config, 'replay')
    fill(replay, config)
    batch = replay.sample(4, 'train')
    assert batch['image'].shape == (4, 17, 16, 16, 3)


@pytest.mark.parametrize(
    'line, home',
    [
        ('--script train', None),
        ('--script train_eval', None),
        ('--script parallel', 'run/replay'),
        ('--script parallel_replay', 'run/replay'),
        ('--script train --replay.dir {}/big', 'big/replay'),
        ('--script parallel --replay.dir {}/big', 'big/replay'),
    ],
)
def test_distributed_runs_keep_replay_in_their_folder(tmp_path, line, home):
    config = resolve(f'{line.format(tmp_path)} --logdir {tmp_path}/run')
    with contextlib.closing(factories.make_replay(config, 'replay')) as replay:
        fill(replay, config)
    folders = {str(p.parent.relative_to(tmp_path)) for p in tmp_path.rglob('*.*')}
    assert folders == ({home} if home else set())


def test_replay_starts_with_that_of_another_run(tmp_path):
    line = f'--script parallel --replay.online False --logdir {tmp_path}'
    config = resolve(f'{line}/first')
    with contextlib.closing(factories.make_replay(config, 'replay')) as replay:
        fill(replay, config, steps=40)
    config = resolve(f'{line}/second --replay.load_from {tmp_path}/first/replay')
    with contextlib.closing(factories.make_replay(config, 'replay')) as replay:
        assert (replay.stats()['steps'], replay.inserts) == (40, 0)
    with contextlib.closing(factories.make_replay(config, 'x', 'eval')) as replay:
        assert replay.stats()['steps'] == 0


def test_the_bound_in_gigabytes_holds_and_the_eval_replay_gets_a_tenth(tmp_path):
    for mode, bound in (('train', 0.002), ('eval', 0.0002)):
        config = resolve('--replay.max_gb 0.002 --replay.chunksize 16')
        replay = factories.make_replay(config, 'replay', mode)
        fill(replay, config, steps=4000)
        assert replay.stats()['gigabytes'] <= bound


def test_shares_that_do_not_add_up_are_refused():
    with pytest.raises(ConfigError, match='sum to 1'):
        factories.make_replay(resolve('--replay.fracs.recency 0.5'), 'replay')


@pytest.mark.parametrize('mode, length', [('train', 8), ('report', 4), ('eval', 4)])
def test_stream_cuts_sequences_into_consecutive_batches(mode, length):
    line = '--batch_size 3 --batch_length 8 --report_length 4 --consec_train 2'
    config = resolve(f'{line} --consec_report 3 --replay_context 1')
    replay = factories.make_replay(config, 'x', 'eval' if mode == 'eval' else 'train')
    fill(replay, config)
    stream = factories.make_stream(config, replay, mode)
    count = {'train': 2, 'report': 3, 'eval': 3}[mode]
    batches = [next(stream) for _ in range(count + 1)]
    assert [batch['consec'][0, 0] for batch in batches] == [*range(count), 0]
    for batch in batches:
        assert batch['image'].shape == (3, length + 1, 16, 16, 3)
        assert batch['image'].flags['C_CONTIGUOUS']
    for before, after in zip(batches[:-2], batches[1:-1], strict=True):
        # The context of a batch is the last step of the one before.
        assert (before['stepid'][:, -1] == after['stepid'][:, 0]).all()


def test_reports_longer_than_the_replayed_sequences_are_refused():
    config = resolve('--report_length 64')
    replay = factories.make_replay(config, 'replay', 'train')
    with pytest.raises(ConfigError, match='report_length'):
        factories.make_stream(config, replay, 'report')


def test_logger_has_the_outputs_that_were_asked_for_and_always_json(tmp_path, capfd):
    flags = f'--logger.outputs video csv tensorboard --logdir {tmp_path}'
    logger = factories.make_logger(resolve(flags))
    logger.add({'x': 1.0, 'picture': np.zeros((8, 8, 3), np.uint8)})
    logger.close()
    files = {'metrics.jsonl', 'metrics.csv', 'tensorboard', 'videos'}
    assert {p.name for p in tmp_path.iterdir()} == files
    assert capfd.readouterr() == ('', '')


def test_quiet_means_nothing_on_the_terminal(tmp_path, capfd):
    logger = factories.make_logger(resolve(f'--quiet --logdir {tmp_path}'))
    logger.add({'x': 1.0})
    logger.close()
    assert capfd.readouterr() == ('', '')


def test_terminal_counts_the_restarts_that_the_launcher_reports(tmp_path, capfd):
    logger = factories.make_logger(resolve(f'--logdir {tmp_path}'))
    role = {'state': 'running', 'activity': '', 'error': '', 'pid': 1}
    roles = {'agent': {**role, 'restarts': 2}, 'replay': {**role, 'restarts': 1}}
    for number, known in enumerate(({}, roles)):
        StatusFile(tmp_path, epoch=1).write('running', known)
        logger.add({'x': 1.0})
        logger.write()
        line = capfd.readouterr().out
        assert ('restarts 3' in line) == bool(number), line
    logger.close()


def test_terminal_shows_what_takes_a_role_long(tmp_path):
    config = resolve(f'--logdir {tmp_path}')
    role = {'state': 'running', 'error': '', 'pid': 1, 'restarts': 0}
    doing = {'activity': 'compiling', 'doing': 'compiling train for 34 s'}
    output = sinks.MAKERS['terminal'](config)
    output._console = Console(file=io.StringIO(), width=100)
    StatusFile(tmp_path, epoch=1).write('running', {'agent': {**role, **doing}})
    output._console.print(output._render())
    assert 'agent compiling train for 34 s.' in output._console.file.getvalue()


def test_output_that_fails_is_noted_in_the_folder(tmp_path, capfd):
    logger = factories.make_logger(
        resolve(f'--logger.outputs video --logdir {tmp_path}')
    )
    (tmp_path / 'videos').write_text('in the way')
    logger.add({'x': 1.0, 'picture': np.zeros((8, 8, 3), np.uint8)})
    logger.close()
    (event,) = read_records(tmp_path / 'events.jsonl')
    assert (event['event'], event['output']) == ('output_failed', 'VideoOutput')
    assert 'FileExistsError' in event['error']
    assert 'VideoOutput failed' in capfd.readouterr().err
    assert read_records(tmp_path / 'metrics.jsonl')[0]['x'] == 1.0


@pytest.mark.parametrize(
    'flags, expected',
    [
        ('', ''),
        ('--replay.size {large}', 'GB of memory for replay'),
        ('--replay.size {large} --quiet', ''),
        ('--replay.dir {folder} --replay.size 1e12', 'are free. Lower replay.size'),
        ('--replay.dir {folder} --replay.size 1e12 --quiet', 'are free. Lower'),
        ('--replay.size {large} --script eval_only', ''),
    ],
)
def test_a_replay_that_takes_much_of_what_is_free_is_announced(
    flags, expected, tmp_path, capsys
):
    row = 16 * 16 * 3  # bytes of an image, the least that a step takes
    large = int(0.7 * psutil.virtual_memory().available / (row + 100))
    config = resolve(flags.format(folder=tmp_path / 'new', large=large))
    factories.make_agent(config.update(random_agent=True))
    said = capsys.readouterr().err
    assert expected in said
    assert ('dreamer: this run needs about' in said) == bool(expected)


def test_random_agent_plays_the_task():
    agent = factories.make_agent(resolve('--random_agent True --task dummy_mixed'))
    assert isinstance(agent, embodied.RandomAgent)
    assert set(agent.act_space) == {'act_disc', 'act_cont', 'act_multi'}
    assert not any(key.startswith('log/') for key in agent.obs_space)


WORKER = """
import pickle, sys
for make in pickle.load(open(sys.argv[1], 'rb')):
    make()
heavy = {'jax', 'jaxlib', 'equinox', 'optax', 'matplotlib'}
print(sorted(heavy & {name.partition('.')[0] for name in sys.modules}))
"""


@pytest.mark.parametrize('pickler', [pickle, cloudpickle])
def test_workers_that_unpickle_factories_do_not_import_jax(tmp_path, pickler):
    config = resolve(f'--logdir {tmp_path}')
    bind = functools.partial
    makers = [
        bind(factories.make_env, config, 0),
        bind(factories.make_env, config.update(task='gym_CartPole-v1'), 1, mode='eval'),
        bind(factories.make_replay, config, 'replay'),
        bind(factories.make_logger, config),
    ]
    path = tmp_path / 'makers.pkl'
    path.write_bytes(pickler.dumps(makers))
    env = {**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)}
    command = [sys.executable, '-c', WORKER, str(path)]
    result = subprocess.run(command, capture_output=True, text=True, env=env)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == '[]'
