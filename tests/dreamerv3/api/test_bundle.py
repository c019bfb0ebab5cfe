"""`dreamer export` and `dreamer import`: agents that travel."""

import json
import pathlib
import pickle
import re
import shutil

import agents
import elements
import jax
import numpy as np
import pytest
import safetensors.numpy

import dreamerv3
from dreamerv3 import factories
from dreamerv3.agent.model import Dreamer
from dreamerv3.api import bundle as bundle_lib
from dreamerv3.api.origin import Origin
from dreamerv3.api.reference_names import read, reference_name
from dreamerv3.commands.importing import merge
from dreamerv3.main import main
from embodied.core.checkpoint import load_part
from embodied.core.errors import CheckpointError
from embodied.jax.tree import Tree
from embodied.logging import ScoreFile, read_records

FILES = ('--logger.outputs', 'jsonl')
MAPPING = pathlib.Path(__file__).parents[3] / 'docs' / 'bundles.md'


@pytest.fixture(scope='module')
def bundle(catch_run, tmp_path_factory):
    """The agent of the run as a bundle."""
    run = tmp_path_factory.mktemp('run')
    shutil.copytree(catch_run, run, dirs_exist_ok=True)
    scores = ScoreFile(run)
    for step in range(1, 401):
        scores.add(step, {'score': step, 'length': 7}, env=0)
    scores.close()
    evaluation = {'step': 1234, 'mean': 0.5, 'std': 0.1, 'episodes': 9, 'greedy': True}
    (run / 'eval.jsonl').write_text(json.dumps(evaluation) + '\n')
    out = tmp_path_factory.mktemp('out') / 'my agent'
    assert main(['export', str(run), str(out)]) == 0
    return out


def test_others_may_read_all_files_of_a_bundle(bundle):
    modes = {path.name: path.stat().st_mode for path in bundle.iterdir()}
    assert len(set(modes.values())) == 1, modes


def test_bundle_holds_weights_config_scores_and_a_card(bundle, catch_run):
    names = {path.name for path in bundle.iterdir()}
    assert names == {
        'README.md',
        'agent.json',
        'config.yaml',
        'scores.csv',
        'weights.safetensors',
    }
    saved = load_part(catch_run, 'agent')['state']
    weights = safetensors.numpy.load_file(bundle / 'weights.safetensors')
    assert weights.keys() == {k for k in saved if not k.startswith('opt.')}
    for name, value in weights.items():
        assert value.shape == saved[name].shape
        np.testing.assert_array_equal(value, saved[name], err_msg=name)
    lines = (bundle / 'scores.csv').read_text().splitlines()
    # 400 episodes in 200 bins of two.
    assert len(lines) == 201
    assert lines[0] == 'step,episodes,mean,min,max'
    assert lines[1] == '2,2,1.5,1,2'
    card = (bundle / 'README.md').read_text()
    assert '`toy_catch`' in card and '1,234 environment steps' in card
    # The last 100 training episodes scored 301 to 400.
    assert '| last training episodes | 350.5 | 28.87 | 100 |' in card
    assert '| evaluation at step 1,234, greedy | 0.5 | 0.1 | 9 |' in card
    assert "dreamer eval 'my agent'" in card


def test_bundle_names_no_place_of_the_machine_it_comes_from(bundle, catch_run):
    for path in bundle.iterdir():
        if path.suffix != '.safetensors':
            assert str(catch_run.parent) not in path.read_text(), path
    config = elements.Config.load(bundle / 'config.yaml')
    assert config.logdir == '~/logdir/{timestamp}-{task}'


def test_environments_of_users_stay_behind(catch_run, tmp_path):
    origin = Origin.load(load_part(catch_run, 'agent')['origin'])
    config = origin.config.update(task=f'pickle:{tmp_path}/make_env.pkl')
    bundle_lib.write(tmp_path / 'b', origin._replace(config=config), {}, 0)
    assert bundle_lib.read(tmp_path / 'b')[0].config.task == 'own'


def test_loaded_bundle_acts_as_the_run_it_comes_from(bundle, catch_run):
    image = {'image': np.arange(768, dtype=np.uint8).reshape(16, 16, 3)}
    ours, theirs = dreamerv3.load(bundle), dreamerv3.load(catch_run)
    assert ours.step == theirs.step == 1234
    for agent in (ours, theirs):
        _, state = agent.act(image, greedy=True)
        agent.action, agent.state = agent.act(image, state, greedy=True)
    assert ours.action == theirs.action
    np.testing.assert_array_equal(ours.state.state.deter, theirs.state.state.deter)


def test_import_starts_a_run_from_the_bundle_and_the_same_command_continues(
    bundle, tmp_path, capfd
):
    flags = ['--logdir', str(tmp_path / 'run'), '--run.steps', '24', *FILES]
    assert main(['import', str(bundle), *flags]) == 0
    assert 'parameters taken from' in capfd.readouterr().out
    events = read_records(tmp_path / 'run' / 'events.jsonl')
    assert [x['event'] for x in events if x['event'] == 'initialized']
    taken = load_part(tmp_path / 'run', 'agent')['state']
    for name, value in safetensors.numpy.load_file(
        bundle / 'weights.safetensors'
    ).items():
        np.testing.assert_array_equal(taken[name], value, err_msg=name)
    assert main(['import', str(bundle), *flags, '--run.steps', '32']) == 0
    config = elements.Config.load(tmp_path / 'run' / 'config.yaml')
    assert config.run.steps == 32
    assert config.task == 'toy_catch'


@pytest.mark.parametrize(
    ('damage', 'words'),
    [
        (lambda x: (x / 'agent.json').write_text('{'), 'cannot be read'),
        (lambda x: (x / 'weights.safetensors').write_bytes(b'123'), 'cannot be read'),
        (lambda x: (x / 'agent.json').write_text('{"format": 9}'), 'format 9'),
        (lambda x: (x / 'config.yaml').unlink(), 'cannot be read'),
    ],
)
def test_broken_bundles_are_explained(bundle, tmp_path, capsys, damage, words):
    shutil.copytree(bundle, tmp_path / 'b')
    damage(tmp_path / 'b')
    assert main(['eval', str(tmp_path / 'b')]) == 2
    assert words in capsys.readouterr().err


def test_export_overwrites_nothing(bundle, catch_run, capsys):
    assert main(['export', str(catch_run), str(bundle)]) == 2
    assert 'not empty' in capsys.readouterr().err


# The reference implementation


def write_reference(folder, params):
    """As the reference saves: a folder with a pointer and a pickle of flat names."""
    save = folder / 'ckpt' / '20250101T000000F000000'
    save.mkdir(parents=True)
    data = {'params': params, 'counters': {'updates': 5, 'batches': 5, 'actions': 9}}
    (save / 'agent.pkl').write_bytes(pickle.dumps(data))
    (save / 'done').touch()
    (folder / 'ckpt' / 'latest').write_text(save.name)
    return folder


def as_flags(config):
    text = lambda x: ','.join(map(str, x)) if isinstance(x, tuple) else x
    return [f'--{name}={text(x)}' for name, x in config.flat.items()]


def test_weights_of_the_reference_are_taken_where_shapes_agree(
    catch_run, tmp_path, capsys
):
    # The golden file, whose names the reference gave, is matched in test_golden.py.
    agent = dreamerv3.load(catch_run)
    before = load_part(catch_run, 'agent')['state']
    nets, params = factories.make_agent(agent.config).params, {}
    for name, value in before.items():
        if name.startswith(('params.', 'slow.')):
            theirs = reference_name(name.removeprefix('params.'), nets)
            params[theirs.replace('.', '/')] = np.full(value.shape, 7, np.float32)
    params['rew/head/logits/kernel'] = np.zeros((3, 4), np.float32)
    params['opt/state/count'] = np.zeros((), np.int32)
    source = write_reference(tmp_path / 'theirs', params)
    logdir = tmp_path / 'run'
    flags = [*as_flags(agent.config), '--logdir', str(logdir)]
    assert main(['import', str(source), *flags, '--run.steps', '24', *FILES]) == 0
    out = capsys.readouterr().out
    assert 'Of another shape: params.reward.out.kernel ((3, 4) there' in out
    assert 'Left as they were: ranges.' in out
    state = load_part(logdir, 'agent')['state']
    changed = {k for k in state if not np.array_equal(state[k], before[k])}
    trained = {k for k in state if k.startswith(('params.', 'slow.'))}
    assert changed == trained - {'params.reward.out.kernel'}
    assert all((state[k] == 7).all() for k in changed)


def test_documented_names_are_those_that_are_used():
    spaces = agents.spaces(['image', 'vector', 'token'], ['discrete', 'force'])
    spaces[0]['image'] = elements.Space(np.uint8, (64, 64, 3))
    model = Dreamer(*spaces, agents.make_config(r'--.*\.mults=2,2,2,2'))
    nets = jax.eval_shape(lambda: model.init(jax.random.key(0)))['params']
    used = {
        re.sub(r'\.(kernel|bias|scale)$', '', name): re.sub(
            r'/(kernel|bias|scale)$', '', reference_name(name, nets).replace('.', '/')
        )
        for name in Tree(nets).names
    }
    table = re.findall(r'^\| `(\S+)` \| `(\S+)` \|', MAPPING.read_text(), re.MULTILINE)
    keys = {'<number>': ['vector'], '<class>': ['token'], '<i>': '0123'}
    keys['<key>'] = ['discrete', 'force']
    documented = {}
    for ours, theirs in table:
        rows = [(ours, theirs)]
        for mark, values in keys.items():
            if mark in ours:
                rows = [
                    (a.replace(mark, v), b.replace(mark, v))
                    for a, b in rows
                    for v in values
                ]
        documented |= {a: b for a, b in rows if a in used}
    assert documented == used


def test_check_says_what_fits_and_starts_nothing(bundle, tmp_path, capsys):
    logdir = tmp_path / 'run'
    flags = ['--check', '--logdir', str(logdir), '--agent.value.units', '16']
    assert main(['import', str(bundle), *flags]) == 0
    out = capsys.readouterr().out
    assert 'parameters taken' in out
    assert 'Of another shape: params.value' in out
    assert not logdir.exists()


def test_weights_of_another_size_are_refused_if_nothing_fits():
    class Agent:
        state = {'params.a': np.zeros(3)}

    with pytest.raises(CheckpointError, match=r'No parameter fits .*\(4,\) there'):
        merge(Agent, {'params.a': np.zeros(4)})


class Evil:
    def __reduce__(self):
        import os

        return os.system, ('true',)


@pytest.mark.parametrize('params', [Evil(), {'a': Evil()}, 3])
def test_pickles_that_could_run_code_are_refused(tmp_path, params):
    source = write_reference(tmp_path / 'theirs', params)
    with pytest.raises(CheckpointError, match='no checkpoint of the reference'):
        read(source)


def test_folders_of_any_other_kind_are_explained(tmp_path, capsys, catch_run):
    flags = ['--configs', 'debug', '--jax.cache=', '--logdir', str(tmp_path / 'x')]
    assert main(['import', str(tmp_path), *flags]) == 2
    assert 'neither a bundle' in capsys.readouterr().err
