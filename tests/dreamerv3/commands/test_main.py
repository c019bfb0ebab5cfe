import json
import os
import re
import signal
import subprocess
import sys

import elements
import pytest
from PIL import Image

import embodied
from dreamerv3 import config as config_lib
from dreamerv3.main import main
from dreamerv3.run_folder import RunFolder, expand
from embodied.core.checkpoint import load_part_and_step
from embodied.core.errors import ConfigError
from embodied.envs.registry import label
from embodied.logging import read_records

# A whole run within a second: nothing to compile.
FAST = ['--configs', 'tiny', '--random_agent', 'True', '--run.envs', '2']
FAST += ['--run.debug', 'True', '--logger.outputs', 'jsonl', '--run.steps', '600']


def run(logdir, *argv):
    return main([*argv, *FAST, '--logdir', str(logdir)])


def resolve(logdir, *flags):
    return config_lib.resolve([*flags, '--logdir', str(logdir)])[0]


def steps(logdir):
    return [record['step'] for record in read_records(logdir / 'metrics.jsonl')]


def events(logdir):
    return read_records(logdir / 'events.jsonl')


@pytest.mark.parametrize('script', ['train', 'train_eval'])
def test_run_leaves_config_scores_metrics_and_events(tmp_path, script):
    assert run(tmp_path, script) == 0
    config = elements.Config.load(tmp_path / 'config.yaml')
    assert (config.script, config.run.steps) == (script, 600)
    assert config.logdir == str(tmp_path)
    scores = read_records(tmp_path / 'scores.jsonl')
    assert {record['eval'] for record in scores} == (
        {False} if script == 'train' else {False, True}
    )
    assert {record['length'] for record in scores} == {7}
    assert steps(tmp_path)[-1] == 600
    assert events(tmp_path)[0]['event'] == 'start'
    assert events(tmp_path)[-1] | {'time': 0} == {
        'time': 0,
        'event': 'stop',
        'state': 'finished',
        'reason': 'run.steps',
    }


def test_script_flag_means_the_same_as_the_command(tmp_path):
    assert main([*FAST, '--script', 'train', '--logdir', str(tmp_path)]) == 0
    assert steps(tmp_path)[-1] == 600


def test_same_command_continues_and_changed_options_are_logged(tmp_path):
    assert run(tmp_path, 'train') == 0
    assert run(tmp_path, 'train', '--run.envs=2', '--logger.fps', '20') == 0
    assert main(['train', *FAST, '--logdir', str(tmp_path), '--run.steps', '800']) == 0
    assert steps(tmp_path)[-1] == 800
    changed = [e['options'] for e in events(tmp_path) if e['event'] == 'changed']
    assert changed == [
        {'logger.fps': [15, 20]},
        {'logger.fps': [20, 15], 'run.steps': [600.0, 800.0]},
    ]
    config = elements.Config.load(tmp_path / 'config.yaml')
    assert config.run.steps == 800


def test_resume_with_another_meaning_is_refused_with_the_difference(tmp_path, capsys):
    assert run(tmp_path, 'train') == 0
    saved = (tmp_path / 'config.yaml').read_text()
    assert run(tmp_path, 'train', '--seed', '3', '--agent.opt.lr', '1') == 2
    message = capsys.readouterr().err
    assert 'seed: 0 -> 3' in message
    assert re.search(r'agent\.opt\.lr: .* -> 1\.0', message)
    assert (tmp_path / 'config.yaml').read_text() == saved


@pytest.mark.parametrize(
    'wrong', [['--batch_size', '0'], ['--task', 'dummy_nothing'], ['--run.envs', '0']]
)
def test_a_command_that_was_refused_may_be_corrected(tmp_path, wrong):
    assert main(['train', *FAST, '--logdir', str(tmp_path), *wrong]) == 2
    assert (tmp_path / 'config.yaml').exists()
    assert run(tmp_path, 'train') == 0
    assert elements.Config.load(tmp_path / 'config.yaml').batch_size > 0


def test_evaluation_visits_the_folder_of_a_run(tmp_path):
    assert run(tmp_path, 'train') == 0
    assert run(tmp_path, 'eval_only', '--run.eval_eps', '3') == 0
    scores = read_records(tmp_path / 'scores.jsonl')
    assert sum(record['eval'] for record in scores) == 2 * 3
    assert elements.Config.load(tmp_path / 'config.yaml').script == 'train'


def test_evaluation_without_a_trained_agent_is_refused(tmp_path, capsys):
    assert run(tmp_path, 'eval_only') == 2
    assert 'checkpoint' in capsys.readouterr().err


def test_second_run_on_a_folder_in_use_is_refused_by_name(tmp_path, capsys):
    with RunFolder(resolve(tmp_path)):
        assert run(tmp_path, 'train') == 2
    message = capsys.readouterr().err
    assert str(tmp_path) in message
    assert f'process {os.getpid()}' in message
    assert run(tmp_path / 'other', 'train') == 0


def test_lock_of_a_killed_process_does_not_hold(tmp_path):
    code = (
        'import os, signal, sys\n'
        'from dreamerv3 import config\n'
        'from dreamerv3.run_folder import RunFolder\n'
        "folder = RunFolder(config.resolve(['--logdir', sys.argv[1]])[0])\n"
        'folder.__enter__()\n'
        'os.kill(os.getpid(), signal.SIGKILL)\n'
    )
    done = subprocess.run([sys.executable, '-c', code, str(tmp_path)])
    assert done.returncode == -signal.SIGKILL
    assert json.loads((tmp_path / 'lock').read_text())['pid'] != os.getpid()
    with RunFolder(resolve(tmp_path)):
        assert json.loads((tmp_path / 'lock').read_text())['pid'] == os.getpid()


def test_failed_run_says_so_in_its_events_and_frees_the_folder(tmp_path):
    with pytest.raises(RuntimeError), RunFolder(resolve(tmp_path)):
        raise RuntimeError('out of luck')
    assert events(tmp_path)[-1]['reason'] == 'RuntimeError: out of luck'
    with RunFolder(resolve(tmp_path)):
        pass


@pytest.mark.parametrize(
    'content',
    [
        b'a: [1\n',
        b'',
        b'just text',
        b'- 1\n- 2\n',
        b'\xff\xfe\x00\x01',
        b'{1: {2: 3}}',
        b'a: 1\n',
        b'a: &x [*x]\n',
        None,
    ],
)
def test_a_config_file_that_is_lost_is_written_again(tmp_path, content, capsys):
    assert run(tmp_path, 'train') == 0
    path = tmp_path / 'config.yaml'
    before = path.read_text()
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    assert run(tmp_path, 'train') == 0
    captured = capsys.readouterr()
    assert f'{path} cannot be read' in captured.err
    assert 'is finished' in captured.out
    assert path.read_text() == before
    resumed = events(tmp_path)[-3:]
    assert [x['event'] for x in resumed] == ['damaged', 'resume', 'stop']
    assert resumed[0]['file'] == str(path)
    if content is not None:
        assert (tmp_path / 'config.yaml.bad').read_bytes() == content


def test_an_evaluation_does_not_write_the_config_of_a_run(tmp_path):
    assert run(tmp_path, 'train') == 0
    (tmp_path / 'config.yaml').unlink()
    assert run(tmp_path, 'eval_only', '--run.eval_eps', '1') == 0
    assert not (tmp_path / 'config.yaml').exists()


def test_a_finished_run_stays_finished_without_the_name_of_its_save(tmp_path, capsys):
    assert run(tmp_path, 'train') == 0
    before = load_part_and_step(tmp_path, 'progress')
    (tmp_path / 'ckpt' / 'latest').unlink()
    assert run(tmp_path, 'train') == 0
    captured = capsys.readouterr()
    assert 'is finished: 600 steps' in captured.out
    assert str(tmp_path / 'ckpt' / 'latest') in captured.err
    assert load_part_and_step(tmp_path, 'progress') == before
    assert 'damaged' in [x['event'] for x in events(tmp_path)]


def test_a_run_goes_on_from_the_save_before_a_damaged_one(tmp_path, capsys):
    keep = ('--run.keep', '2', '--run.save_every', '0')
    assert run(tmp_path, 'train', *keep) == 0
    command = ['train', *FAST, *keep, '--logdir', str(tmp_path), '--run.steps']
    assert main([*command, '700']) == 0
    older, newer = sorted(x for x in (tmp_path / 'ckpt').iterdir() if x.is_dir())
    data = bytearray((newer / 'replay.pkl').read_bytes())
    data[len(data) // 2] ^= 1
    (newer / 'replay.pkl').write_bytes(data)
    capsys.readouterr()
    assert main([*command, '800']) == 0
    assert f'{newer} is broken: replay.pkl does not match' in capsys.readouterr().err
    found = [x for x in events(tmp_path) if x['event'] in ('damaged', 'restored')][-2:]
    assert [x['event'] for x in found] == ['damaged', 'restored']
    assert found[0]['used'] == older.name
    assert steps(tmp_path)[-1] == 800


def test_a_run_without_a_whole_save_is_refused_by_one_message(tmp_path, capsys):
    assert run(tmp_path, 'train') == 0
    (part,) = (tmp_path / 'ckpt').glob('*/agent.pkl')
    part.write_bytes(part.read_bytes()[:-1])
    before = sorted((tmp_path / 'ckpt').rglob('*'))
    command = ['train', *FAST, '--logdir', str(tmp_path), '--run.steps', '800']
    capsys.readouterr()
    assert main([*command, '--quiet', 'True']) == 2
    message = capsys.readouterr().err
    assert message.count('dreamer: ') == 1 and 'agent.pkl has' in message
    assert sorted((tmp_path / 'ckpt').rglob('*')) == before


@pytest.mark.parametrize('name', ['metrics.jsonl', 'scores.jsonl', 'events.jsonl'])
@pytest.mark.parametrize(
    'tail', [b'{"step": 7', b'\xff\x00\n', b'[3]\n', b'{"step": "x"}\n', b'{}\n']
)
def test_garbage_at_the_end_of_a_file_does_not_keep_a_run_from_going_on(
    tmp_path, name, tail
):
    assert run(tmp_path, 'train') == 0
    with (tmp_path / name).open('ab') as file:
        file.write(tail)
    command = ['train', *FAST, '--logdir', str(tmp_path), '--run.steps', '700']
    assert main(command) == 0
    assert read_records(tmp_path / 'metrics.jsonl')[-1]['step'] == 700


@pytest.mark.parametrize('name', ['events.jsonl', 'provenance.jsonl', 'metrics.jsonl'])
def test_a_file_that_cannot_be_written_is_one_message(tmp_path, name, capsys):
    (tmp_path / name).mkdir(parents=True)
    assert run(tmp_path, 'train') == 2
    message = capsys.readouterr().err
    assert message.count('dreamer: ') == 1 and str(tmp_path / name) in message
    assert 'Is a directory. Give this user' in message


def test_unusable_logdir_is_named(tmp_path, capsys):
    (tmp_path / 'file').write_text('')
    assert run(tmp_path / 'file' / 'run', 'train') == 2
    message = capsys.readouterr().err
    assert f'Cannot write to {tmp_path / "file"}' in message
    assert 'choose another --logdir' in message


def test_logdir_is_filled_in(monkeypatch):
    monkeypatch.setenv('HOME', '/home/user')
    path = expand('~/logs/{task}/{timestamp}', 'gym_a/b:C-v1')
    folder, stamp = path.rsplit('/', 1)
    assert folder == '/home/user/logs/gym_a-b-C-v1'
    assert len(stamp) == len('20260215T093000')
    with pytest.raises(ConfigError, match='{seed}.*{timestamp} and {task}'):
        expand('~/logs/{seed}', 'task')


@pytest.mark.parametrize(
    'argv, parts',
    [
        (['trian'], ["'trian'", 'train']),
        (['train', '--task', 'toy_cath'], ['toy_cath', 'toy_catch']),
        (['train', '--task', 'crafter_rewrd'], ['crafter_rewrd', 'crafter_reward']),
        (['train', '--lr', '3'], ['--agent.opt.lr']),
        (['config', '--configs', 'huge'], ["'huge'", 'size400m']),
    ],
)
def test_mistakes_are_one_clean_message_and_exit_code_2(tmp_path, capsys, argv, parts):
    assert main([*argv, '--logdir', str(tmp_path / 'run')]) == 2
    out, err = capsys.readouterr()
    assert out == ''
    assert err.startswith('dreamer: ')
    assert 'Traceback' not in err
    for part in parts:
        assert part in err


def test_debugging_shows_the_stack_of_a_mistake(tmp_path, capsys):
    argv = ['train', '--task', 'toy_cath', '--logdir', str(tmp_path)]
    assert main([*argv, '--run.debug', 'True']) == 2
    assert 'Traceback' in capsys.readouterr().err


def test_config_is_printed_on_request_with_warnings_apart(capsys):
    assert main(['config', '--configs', 'crafter', '--run.train_ratio', '8']) == 0
    out, err = capsys.readouterr()
    assert 'train_ratio: 8.0' in out
    assert err.count('\n') == 1
    assert 'run.train_ratio' in err


def test_tasks_are_listed_with_their_suites(capsys):
    assert main(['tasks']) == 0
    out = capsys.readouterr().out
    for suite in embodied.envs.tasks():
        for name in suite.names:
            assert label(suite.suite, name).split()[0] in out
    assert 'procgen: not installed' in out
    assert main(['tasks', 'toy']) == 0
    assert capsys.readouterr().out == 'toy: built in\n  toy_catch  toy_reach\n'
    assert main(['tasks', 'toys']) == 2


@pytest.mark.parametrize('argv', [[], ['--help'], ['-h'], ['help']])
def test_help_names_every_command(capsys, argv):
    assert main(argv) == 0
    out = capsys.readouterr().out
    for command in ('train', 'train_eval', 'eval_only', 'tasks', 'config', 'demo'):
        assert f'\n  {command} ' in out


def test_module_is_the_command_and_returns_its_exit_code():
    command = [sys.executable, '-m', 'dreamerv3', 'nothing']
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith('dreamer: Unknown command')


def test_console_shows_single_lines_and_nothing_else(tmp_path, capfd):
    flags = ['--logger.outputs', 'terminal', '--run.log_every', '-1']
    assert main(['train', *FAST, *flags, '--logdir', str(tmp_path)]) == 0
    out, err = capfd.readouterr()
    assert err == ''
    lines = out.splitlines()
    assert len(lines) > 10
    assert all(line.startswith('step ') for line in lines)
    assert lines[-1].startswith('step 600  score ')


def test_run_leaves_videos_of_episodes(tmp_path):
    flags = ['--logger.outputs', 'video', '--logdir', str(tmp_path)]
    assert main(['train', *FAST, *flags]) == 0
    names = {p.name.partition('-')[0] for p in (tmp_path / 'videos').iterdir()}
    assert names == {'episode_film_image'}
    with Image.open(next((tmp_path / 'videos').glob('*.gif'))) as film:
        assert film.n_frames == 8


def test_quiet_run_prints_nothing(tmp_path, capfd):
    flags = ['--quiet', '--logger.outputs', 'terminal', '--logdir', str(tmp_path)]
    assert main(['train', *FAST, *flags]) == 0
    assert main(['train', *FAST, *flags]) == 0, 'nothing left to do'
    assert capfd.readouterr() == ('', '')
    assert steps(tmp_path)[-1] == 600


def test_replay_tools_are_reached_with_their_own_help(capsys):
    with pytest.raises(SystemExit) as info:
        main(['replay', '--help'])
    assert info.value.code == 0
    assert 'dreamer replay' in capsys.readouterr().out
