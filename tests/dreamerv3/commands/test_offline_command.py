"""`dreamer offline`: from recorded data to a run that all other commands work with."""

import json
import shutil
import signal
import subprocess
import sys

import elements
import numpy as np
import pytest

from dreamerv3 import config as config_lib
from dreamerv3 import offline_data
from dreamerv3.dashboard.runs.folders import find_runs
from dreamerv3.dashboard.runs.summary import Summarizer
from dreamerv3.main import main
from embodied import envs
from embodied.core.checkpoint import load_part
from embodied.core.errors import ConfigError
from embodied.logging import read_records
from embodied.replay import Replay
from embodied.replay.tools.inspection import Inspection

TINY = ['--configs', 'tiny', 'debug', '--jax.platform', 'cpu', '--quiet']
TINY += ['--logger.outputs', 'jsonl', '--run.log_every', '-1']
ENVS = ['--run.eval_envs', '2', '--run.eval_every', '8']


def play(count, task='toy_catch', **settings):
    """Rows of episodes of random play."""
    env = envs.make(task, seed=0, **{'size': 16, **settings})
    rng = np.random.default_rng(0)
    zeros = {k: np.zeros(v.shape, v.dtype) for k, v in env.act_space.items()}
    for _ in range(count):
        obs, rows = env.step({**zeros, 'reset': True}), []
        while True:
            act = zeros if obs['is_last'] else {'action': np.int32(rng.integers(3))}
            act = {k: v for k, v in {**zeros, **act}.items() if k != 'reset'}
            row = {**obs, **act}
            rows.append({k: v for k, v in row.items() if not k.startswith('log/')})
            if obs['is_last']:
                break
            obs = env.step({**act, 'reset': False})
        yield {k: np.stack([row[k] for row in rows]) for k in rows[0]}


def write_npz(folder, episodes, drop=()):
    folder.mkdir(parents=True)
    for number, values in enumerate(episodes):
        kept = {k: v for k, v in values.items() if k not in drop}
        np.savez(folder / f'{number:03d}.npz', **kept)
    return folder


def write_replay(folder, episodes):
    replay = Replay(2, 1000, folder, chunksize=64, sync_every=0)
    for values in episodes:
        for t in range(len(values['reward'])):
            replay.add({key: value[t] for key, value in values.items()})
    replay.close()


def offline(logdir, *flags):
    return main(['offline', *TINY, '--logdir', str(logdir), *map(str, flags)])


@pytest.fixture(scope='module')
def made(tmp_path_factory):
    """A finished run on a replay and npz files at once, with evaluations."""
    folder = tmp_path_factory.mktemp('made')
    write_replay(folder / 'recorded' / 'replay', play(20))
    write_npz(folder / 'more', play(10), drop=('is_first', 'is_last'))
    flags = ['--data', folder / 'recorded', folder / 'more', '--task', 'toy_catch']
    flags += [*ENVS, '--run.updates', 12]
    assert offline(folder / 'run', *flags) == 0
    return folder, flags


def test_all_data_are_in_the_replay_of_the_run(made):
    folder, _ = made
    record = json.loads((folder / 'run' / 'replay' / 'data.json').read_text())
    look = Inspection(folder / 'run')
    steps = Inspection(folder / 'recorded').steps + 10 * 8
    assert (record['steps'], look.steps, record['complete']) == (steps, steps, True)
    rewards = np.concatenate([look.read('reward', p) for _, p in look.episodes()])
    recorded = [x['reward'] for x in [*play(20), *play(10)]]
    assert rewards.sum() == sum(x.sum() for x in recorded)


def test_it_has_metrics_scores_of_evaluations_and_checkpoints(made):
    folder, _ = made
    records = read_records(folder / 'run' / 'metrics.jsonl')
    assert records[-1]['step'] == records[-1]['train/updates'] == 12
    assert [x['step'] for x in records if 'eval/score' in x] == [0, 8, 12]
    assert any('report/loss/rec/image' in x for x in records)
    assert {x['step'] for x in read_records(folder / 'run' / 'scores.jsonl')} == {
        0,
        8,
        12,
    }
    ended = read_records(folder / 'run' / 'events.jsonl')[-1]
    assert (ended['state'], ended['reason']) == ('finished', 'run.updates')
    assert load_part(folder / 'run', 'progress')['updates'] == 12


def test_the_same_command_goes_on_without_the_data(made, tmp_path):
    folder, flags = made
    shutil.copytree(folder / 'run', tmp_path / 'run')
    for name in ('recorded', 'more'):
        (folder / name).rename(tmp_path / name)
    try:
        longer = [*flags[:-1], 15]
        assert offline(tmp_path / 'run', *longer) == 0
    finally:
        for name in ('recorded', 'more'):
            (tmp_path / name).rename(folder / name)
    assert read_records(tmp_path / 'run' / 'metrics.jsonl')[-1]['train/updates'] == 15


def test_other_commands_work_with_its_folder(made, tmp_path, capsys):
    folder, _ = made
    run = str(folder / 'run')
    out = str(tmp_path / 'out')
    assert main(['eval', run, '--episodes', '2', '--envs', '2', '--out', out]) == 0
    assert (
        '2 episodes of toy_catch with the agent of step 12' in capsys.readouterr().out
    )
    assert main(['plot', run, '--out', str(tmp_path / 'curve.png')]) == 0
    assert main(['export', run, str(tmp_path / 'bundle')]) == 0
    assert main(['replay', 'check', run]) == 0
    (found,) = find_runs([folder / 'run'])
    summary = Summarizer().summary(found)
    assert (summary['step'], summary['steps'], summary['script']) == (12, 12, 'offline')


def test_other_data_are_refused_when_it_goes_on(made, capsys):
    folder, flags = made
    assert offline(folder / 'run', '--data', folder / 'more', *flags[3:]) == 2
    assert 'data: ' in capsys.readouterr().err


def test_a_run_with_environments_does_not_go_on_in_its_folder(made, capsys):
    folder, _ = made
    argv = ['train', *TINY, '--logdir', str(folder / 'run'), '--task', 'toy_catch']
    assert main(argv) == 2
    assert 'script: offline -> train' in capsys.readouterr().err


def test_training_goes_on_online_from_its_agent_and_its_data(made, tmp_path):
    folder, _ = made
    flags = ['--run.from_checkpoint', folder / 'run', '--run.steps', 200]
    flags += ['--replay.load_from', folder / 'run', '--task', 'toy_catch']
    flags += ['--run.report_every', 0]
    argv = ['train', *TINY, '--logdir', tmp_path, *flags]
    assert main([str(x) for x in argv]) == 0
    records = read_records(tmp_path / 'metrics.jsonl')
    assert records[-1]['replay/steps'] >= 240 + 200
    events = [x['event'] for x in read_records(tmp_path / 'events.jsonl')]
    assert 'initialized' in events


def weights_of(run, version=None):
    folder = run / 'ckpt'
    state = load_part(folder / version if version else folder, 'agent')['state']
    return {k.split('.', 1)[1]: v for k, v in state.items() if k.startswith('params.')}


def test_a_world_model_alone_is_trained_and_gone_on_from_online(made, tmp_path):
    folder, _ = made
    model = ['--configs', 'tiny', 'debug', 'world_model', '--run.report_every', 0]
    model += ['--data', folder / 'recorded', '--run.updates', 8, '--run.keep', 99]
    assert offline(tmp_path / 'model', *model) == 0
    first = min(x.name for x in (tmp_path / 'model' / 'ckpt').glob('*-*'))
    before = weights_of(tmp_path / 'model', first)
    after = weights_of(tmp_path / 'model')
    parts = {k.split('.')[0] for k in before if not np.array_equal(before[k], after[k])}
    assert parts == {'enc', 'dyn', 'dec', 'reward', 'cont'}
    metrics = read_records(tmp_path / 'model' / 'metrics.jsonl')[-1]
    assert not any(name.startswith('train/imag/') for name in metrics)
    online = ['--configs', 'tiny', 'debug', 'from_world_model', '--task', 'toy_catch']
    online += ['--run.from_checkpoint', tmp_path / 'model', '--run.steps', 0]
    argv = ['train', *TINY, '--logdir', tmp_path / 'online', *online, '--seed', 1]
    assert main([str(x) for x in argv]) == 0
    online = weights_of(tmp_path / 'online')
    for name, value in after.items():
        if name.split('.')[0] in parts:
            np.testing.assert_array_equal(online[name], value, err_msg=name)
    policy = [k for k in after if k.startswith('policy.')]
    assert any(not np.array_equal(online[k], after[k]) for k in policy)


def test_an_agent_without_a_task_asks_for_one_to_play(made, tmp_path, capsys):
    folder, _ = made
    flags = ['--data', folder / 'more', '--run.updates', 1, '--run.report_every', 0]
    assert offline(tmp_path / 'run', *flags) == 0
    assert main(['eval', str(tmp_path / 'run')]) == 2
    assert 'Name one: --task' in capsys.readouterr().err
    argv = ['eval', str(tmp_path / 'run'), '--task', 'toy_catch', '--episodes', '1']
    assert main([*argv, '--env.toy.size', '16']) == 0


# Refusals, before anything is compiled


def refuse(tmp_path, capsys, *flags):
    """The message; nothing is left that a corrected command would have to fit."""
    there = set(tmp_path.rglob('*'))
    assert offline(tmp_path / 'run', *flags) == 2
    assert set(tmp_path.rglob('*')) == there
    return capsys.readouterr().err


def test_data_have_to_be_given(tmp_path, capsys):
    assert 'Give --data' in refuse(tmp_path, capsys)


def test_limits_that_cannot_be_are_refused_before_data_are_copied(tmp_path, capsys):
    data = write_npz(tmp_path / 'data', play(6))
    assert offline(tmp_path / 'run', '--data', data, '--run.updates', -1) == 2
    assert 'updates=-1 must be at least 0' in capsys.readouterr().err
    assert not (tmp_path / 'run' / 'replay').exists()


def test_a_run_with_environments_takes_no_data(tmp_path, capsys):
    argv = ['train', *TINY, '--data', str(tmp_path), '--logdir', str(tmp_path / 'run')]
    assert main(argv) == 2
    assert 'train does not read --data: choose offline' in capsys.readouterr().err


def test_an_empty_folder_is_refused(tmp_path, capsys):
    (tmp_path / 'empty').mkdir()
    text = refuse(tmp_path, capsys, '--data', tmp_path / 'empty')
    assert f'The folder {tmp_path / "empty"} is empty' in text


def test_data_of_another_task_are_refused_with_both_sides(tmp_path, capsys):
    data = write_npz(tmp_path / 'data', play(2))
    text = refuse(tmp_path, capsys, '--data', data, '--task', 'dummy_disc')
    assert f'The data in {data} do not fit the task dummy_disc' in text
    assert 'vector: float32 of shape (7,) in the task dummy_disc, nothing in' in text


def test_data_that_do_not_fit_the_checkpoint_are_refused(made, tmp_path, capsys):
    folder, _ = made
    data = write_npz(tmp_path / 'data', play(2, size=8))
    flags = ['--data', data, '--run.from_checkpoint', folder / 'run']
    text = refuse(tmp_path, capsys, *flags)
    agent = f'the agent in {folder / "run"}'
    assert f'image: uint8 of shape (16, 16, 3) in {agent}, uint8 of shape (8, 8' in text


def test_fewer_steps_than_a_sequence_are_refused(tmp_path, capsys):
    data = write_npz(tmp_path / 'data', play(1))
    text = refuse(tmp_path, capsys, '--data', data, '--batch_length', 40)
    assert 'hold 8 steps, and a sequence has 41' in text


def test_the_folder_of_the_recording_run_is_no_logdir(tmp_path, capsys):
    write_replay(tmp_path / 'run' / 'replay', play(3))
    text = refuse(tmp_path, capsys, '--data', tmp_path / 'run')
    assert 'holds the replay of another run. Choose another --logdir' in text


def test_a_folder_for_copies_belongs_to_one_run(tmp_path):
    data = write_npz(tmp_path / 'data', play(6))
    home = f'--replay.dir={tmp_path / "home"}'
    config, _ = config_lib.resolve([*TINY, '--script=offline', f'--data={data}', home])
    one = config.update(logdir=str(tmp_path / 'one'), task='')
    assert offline_data.prepare(one).steps == offline_data.prepare(one).steps == 48
    with pytest.raises(ConfigError, match='holds the data of the run in .*one'):
        offline_data.prepare(one.update(logdir=str(tmp_path / 'two')))


def test_a_copy_that_was_interrupted_begins_again(tmp_path):
    data = write_npz(tmp_path / 'data', play(6))
    config, _ = config_lib.resolve([*TINY, '--script=offline', f'--data={data}'])
    config = config.update(logdir=str(tmp_path / 'run'), task='')
    whole = offline_data.prepare(config)
    record = tmp_path / 'run' / 'replay' / 'data.json'
    saved = json.loads(record.read_text())
    record.write_text(json.dumps({**saved, 'complete': False}))
    again = offline_data.prepare(config)
    assert again.steps == whole.steps == Inspection(tmp_path / 'run').steps == 48


def test_spaces_of_an_earlier_start_are_those_of_the_data(tmp_path):
    data = write_npz(tmp_path / 'data', play(6))
    config, _ = config_lib.resolve([*TINY, '--script=offline', f'--data={data}'])
    config = config.update(logdir=str(tmp_path / 'run'), task='')
    first, again = offline_data.prepare(config), offline_data.prepare(config)
    for one, two in zip(first[:2], again[:2], strict=True):
        assert elements.tree.map(repr, one) == elements.tree.map(repr, two)


def test_the_run_of_one_process_is_data_like_any_other(tmp_path):
    argv = ['train', *TINY, '--random_agent', 'True', '--run.steps', '200']
    assert main([*argv, '--logdir', str(tmp_path / 'recorded')]) == 0
    config, _ = config_lib.resolve([*TINY, '--script=offline', '--task', 'toy_catch'])
    run = str(tmp_path / 'run')
    config = config.update(logdir=run, data=(str(tmp_path / 'recorded'),))
    assert offline_data.prepare(config).steps == Inspection(run).steps == 200
    out = str(tmp_path / 'episodes')
    assert main(['replay', 'export', str(tmp_path / 'recorded'), out]) == 0
    assert len(list((tmp_path / 'episodes').glob('*.npz'))) >= 200 // 8


def test_a_signal_while_data_are_copied_ends_the_run(tmp_path, monkeypatch):
    data = write_npz(tmp_path / 'data', play(6))
    config, _ = config_lib.resolve([*TINY, '--script=offline', f'--data={data}'])
    config = config.update(logdir=str(tmp_path / 'run'), task='')
    fill = offline_data.datasets.fill

    def interrupted(*args):
        signal.raise_signal(signal.SIGINT)
        return fill(*args)

    with monkeypatch.context() as patch:
        patch.setattr(offline_data.datasets, 'fill', interrupted)
        assert offline_data.prepare(config) == ('stopped', 'SIGINT')
    assert not (tmp_path / 'run' / 'replay').exists()
    assert offline_data.prepare(config).steps == 48


def test_other_data_may_follow_those_that_are_damaged(tmp_path, capsys):
    whole = write_npz(tmp_path / 'whole', play(6))
    path = write_npz(tmp_path / 'damaged', play(6)) / '005.npz'
    content = bytearray(path.read_bytes())
    content[1000] ^= 255  # of the first picture
    path.write_bytes(content)
    flags = ['--run.updates', 1, '--batch_length', 8]
    assert offline(tmp_path / 'run', *flags, '--data', path.parent) == 2
    assert f'{path} is no whole file' in capsys.readouterr().err
    assert not (tmp_path / 'run' / 'replay').exists()
    assert offline(tmp_path / 'run', *flags, '--data', whole) == 0


def test_other_runs_import_nothing_of_it():
    script = (
        'import sys; import dreamerv3.main, dreamerv3.loops, dreamerv3.factories; '
        'from embodied.run import train, train_eval, eval_only, parallel; '
        'import embodied.run.parallel.launch, embodied.replay.tools.inspection; '
        "heavy = ('embodied.datasets', 'dreamerv3.offline_data', 'minari', 'h5py', "
        "'embodied.run.single.offline'); "
        'print([x for x in heavy if x in sys.modules])'
    )
    done = subprocess.run(
        [sys.executable, '-c', script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == '[]'
