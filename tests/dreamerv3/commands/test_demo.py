"""One short run of the demo with the real agent, looked at from all sides."""

import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from dreamerv3 import config as config_lib
from dreamerv3.commands import demo_pictures as pictures
from dreamerv3.main import main
from embodied.logging import read_records

METRICS = pathlib.Path(__file__).parents[3] / 'docs' / 'metrics.md'
# Smallest networks that still compile everything the demo uses.
FLAGS = ['--configs', 'tiny', 'demo', 'debug', r'--.*\.mults', '2', '4']
FLAGS += ['--run.steps', '400', '--run.log_every', '0.5', '--agent.report_videos', '3']
# Not of this run: only other scripts or environments write these.
OTHERS = ('loop/', 'eval', 'actor_eval/', 'episode/log/', 'episode/abandoned')
OTHERS += ('episode/timeouts', 'episode/torn', 'usage/memory', 'usage/children')
OTHERS += (
    'usage/cpu_cores',
    'usage/envs',
    'usage/eval_envs',
    'usage/gpu',
    'usage/agent/gpu',
)
OTHERS += ('train/opt/policy_grad_norm', 'train/harmony/', 'train/barlow/')
OTHERS += ('train/loss/barlow',)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp('demo')


@pytest.fixture(scope='module')
def output(folder):
    # A process of its own: the logger's process writes to the same output.
    code = (
        'import sys\nfrom dreamerv3.commands import demo\n'
        'demo.main(sys.argv[2:], sys.argv[1])'
    )
    command = [sys.executable, '-c', code, str(folder), *FLAGS]
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout


@pytest.fixture(scope='module')
def logdir(output, folder):
    (path,) = (p for p in folder.iterdir() if p.is_dir())
    return path


def test_demo_tells_what_it_does_and_how_it_went(output):
    first, *_ = lines = output.splitlines()
    assert '8 x 8 cells' in first
    assert '16 x 16 pixels' in first
    assert 'Random play scores -0.75, perfect play 1.00.' in output
    assert [line for line in lines if line.startswith('step ')]
    assert [line for line in lines if line.startswith('Training on the CPU (')]
    score = re.search(r'last \d+ episodes: (-?\d\.\d\d), (-?\d+)% of the way', output)
    final, share = float(score[1]), int(score[2])
    # Both are rounded: the score to hundredths, which are 0.6 percent.
    assert share == pytest.approx(100 * (final + 0.75) / 1.75, abs=0.8)


def test_demo_leaves_curve_and_prediction(output, folder, logdir):
    for name in ('curve.png', 'prediction.png'):
        assert name in output
        assert (folder / name).read_bytes() == (logdir / name).read_bytes()
    with Image.open(folder / 'curve.png') as image:
        assert image.size == pictures.SIZE
    with Image.open(folder / 'prediction.png') as image:
        # Eight frames of two sequences: half of them green, half red.
        assert image.width == pictures.LABELS + 8 * pictures.CELL
        assert image.getpixel((pictures.LABELS, pictures.CAPTION)) == (0, 160, 0)
        assert image.getpixel((image.width - 1, pictures.CAPTION)) == (200, 0, 0)


def test_demo_folder_is_that_of_a_run(logdir):
    names = {path.name for path in logdir.iterdir()}
    assert names >= {'config.yaml', 'metrics.jsonl', 'scores.jsonl', 'ckpt', 'videos'}
    assert read_records(logdir / 'metrics.jsonl')[-1]['step'] >= 400


def written_in(logdir):
    records = read_records(logdir / 'metrics.jsonl')
    return {name for record in records for name in record} - {'step', 'time'}


def matches(written):
    """Names among those written, by the documented name that stands for them."""
    table = METRICS.read_text().split('## Names')[1].split('\n## ')[0]
    names = re.findall(r'^\| `([^`]+)` \|', table, re.MULTILINE)
    to_regex = lambda name: re.sub(r'<\w+>', '.+', re.escape(name))
    patterns = {name: re.compile(to_regex(name)) for name in names}
    return {
        name: {m for m in written if p.fullmatch(m)} for name, p in patterns.items()
    }


def test_documented_metrics_are_those_that_a_run_writes(logdir):
    written = written_in(logdir)
    found = matches(written)
    assert sorted(written - set().union(*found.values())) == []
    unseen = [name for name, matches in found.items() if not matches]
    assert [name for name in unseen if not name.startswith(OTHERS)] == []


def test_metrics_of_a_single_process_are_documented(tmp_path):
    flags = ['--configs', 'tiny', '--random_agent', '--run.envs', '2', '--run.debug']
    flags += ['--run.steps', '600', '--run.eval_every', '200', '--run.eval_envs', '1']
    flags += ['--logger.outputs', 'jsonl', '--logdir', str(tmp_path)]
    assert main(['train_eval', *flags]) == 0
    written = written_in(tmp_path)
    assert written >= {'loop/envs', 'run/seconds', 'replay/train_ratio', 'eval/score'}
    assert sorted(written - set().union(*matches(written).values())) == []


def test_the_demo_ends_by_its_updates_at_the_latest_and_not_by_the_clock():
    config, _ = config_lib.resolve(['--configs', 'tiny', 'demo'])
    assert config.task == 'toy_catch'
    assert config.env.toy.size == 16
    assert config.run.duration == 0
    replayed = config.batch_size * config.batch_length
    assert config.run.steps * config.run.train_ratio / replayed == 6000


def test_the_demo_ends_when_its_score_is_good_enough(tmp_path):
    """Random play is enough here: the way to the optimum that is asked for is none."""
    code = (
        'import sys\nfrom dreamerv3.commands import demo\n'
        'demo.ENOUGH = -1.0\n'
        'demo.main(sys.argv[2:], sys.argv[1])'
    )
    flags = ['--random_agent', '--run.steps', '1e7', '--run.log_every', '0.2']
    command = [sys.executable, '-c', code, str(tmp_path), *flags]
    done = subprocess.run(command, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert 'Score of the last 100 episodes' in done.stdout
    (logdir,) = (p for p in tmp_path.iterdir() if p.is_dir())
    stop = read_records(logdir / 'events.jsonl')[-1]
    assert (stop['event'], stop['reason']) == ('stop', 'SIGINT')


def test_a_demo_that_did_not_suffice_says_what_to_do(output, logdir):
    """This one is far too short to learn anything."""
    assert 'less than most runs reach' in output
    command = re.search(r'To train it further: dreamer (.+)\. To begin', output)[1]
    name, *flags = command.split()
    config, _ = config_lib.resolve([f'--script={name}', *flags])
    assert (config.logdir, config.run.steps) == (str(logdir), 800)
    assert re.search(r'dreamer demo --seed 1$', output, re.MULTILINE)


def test_unknown_option_of_the_demo_is_refused(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(['demo', '--lr', '3']) == 2
    assert '--agent.opt.lr' in capsys.readouterr().err
    assert not (tmp_path / 'demo').exists()


@pytest.mark.parametrize('episodes', [2, 31, 5000])
def test_curve_rises_with_the_scores(episodes):
    levels = {'random play': -0.75, 'optimum': 1.0}
    steps = np.arange(1, episodes + 1) * 8
    rows = []
    for score in (-0.5, 0.75):
        image = pictures.draw_curve(steps, np.full(episodes, score), levels, 'x')
        distance = np.abs(np.asarray(image, int) - (31, 122, 61)).sum(-1)
        rows.append(np.argwhere(distance < 30)[:, 0])  # of the green line
    assert rows[1].max() < rows[0].min()


def test_curve_of_a_single_episode_is_empty_but_there():
    image = pictures.draw_curve([8], [1.0], {'random': -1.0, 'optimum': 1.0}, 'x')
    assert image.size == pictures.SIZE
