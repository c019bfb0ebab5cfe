"""Bundles that travel by the hub: a server here, the hub's own library, real bytes."""

import io
import os
import shutil
import subprocess
import sys

import hub_server
import huggingface_hub
import huggingface_hub.constants
import numpy as np
import pytest
from ruamel.yaml import YAML

import dreamerv3
from dreamerv3.main import main
from embodied.core.errors import CheckpointError, ConfigError, TrustError
from embodied.logging.jsonl import EvalFile

REPO = 'ann/catcher'
# The library's own call of its HTTP client.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content:DeprecationWarning")

ACTING = """
import dreamerv3, numpy as np, sys
agent = dreamerv3.load(sys.argv[1])
print(agent.act({'image': np.zeros((16, 16, 3), np.uint8)}, greedy=True)[0]['action'])
"""


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A hub that the library talks to, with an empty cache, logged in as ann."""
    constants = huggingface_hub.constants
    with hub_server.serve() as hub:
        monkeypatch.setattr(constants, 'ENDPOINT', hub.address)
        monkeypatch.setattr(
            constants,
            'HUGGINGFACE_CO_URL_TEMPLATE',
            hub.address + '/{repo_id}/resolve/{revision}/{filename}',
        )
        monkeypatch.setattr(constants, 'HF_HUB_CACHE', str(tmp_path / 'cache'))
        monkeypatch.setattr(constants, 'HF_TOKEN_PATH', str(tmp_path / 'token'))
        # Its other way of uploading is a program of its own with a server of its own.
        monkeypatch.setattr(constants, 'HF_HUB_DISABLE_XET', True)
        monkeypatch.setenv('HF_TOKEN', 'token-of-ann')
        yield hub


@pytest.fixture
def push(catch_run, tmp_path):
    """Runs `dreamer export --push`; returns its exit code."""

    def run(*flags, repo=REPO, out='out', run=catch_run):
        return main(['export', str(run), str(tmp_path / out), '--push', repo, *flags])

    return run


def as_of(user):
    return {'HF_TOKEN': f'token-of-{user}'}


def test_an_agent_goes_to_the_hub_and_acts_from_there_in_other_processes(
    catch_run, tmp_path
):
    with hub_server.serve() as hub:
        environ = {
            **os.environ,
            **as_of('ann'),
            'HF_ENDPOINT': hub.address,
            'HF_HOME': str(tmp_path / 'home'),
            'HF_HUB_DISABLE_XET': '1',
        }
        execute = lambda *argv: subprocess.run(
            [sys.executable, *argv], env=environ, capture_output=True, text=True
        )
        flags = [str(tmp_path / 'out'), '--push', REPO, '--license', 'mit']
        done = execute('-m', 'dreamerv3', 'export', str(catch_run), *flags)
        assert done.returncode == 0, done.stderr
        assert f'{hub.address}/{REPO}' in done.stdout
        environ |= as_of('bob')
        online = execute('-c', ACTING, f'hf:{REPO}')
        assert online.returncode == 0, online.stderr
    # The hub is gone: what was downloaded is there.
    offline = execute('-c', ACTING, f'hf:{REPO}')
    image = {'image': np.zeros((16, 16, 3), np.uint8)}
    expected = dreamerv3.load(catch_run).act(image, greedy=True)[0]['action']
    assert online.stdout == offline.stdout == f'{expected}\n'


def test_what_is_on_the_hub_is_the_bundle_with_a_card(hub, push, catch_run, tmp_path):
    run = tmp_path / 'run'
    shutil.copytree(catch_run, run)
    file = EvalFile(run)
    file.add(1234, {'mean': 0.5, 'std': 0.25, 'episodes': 9, 'greedy': True})
    file.close()
    line = '{"command": ["/x/dreamer", "train", "--configs", "tiny", "--logdir", "/a"]}'
    (run / 'provenance.jsonl').write_text(line + '\n')
    assert push('--license', 'apache-2.0', '--private', run=run) == 0
    assert hub.private == {REPO}
    _, files = hub.snapshot(REPO, 'main')
    local = {x.name: x.read_bytes() for x in (tmp_path / 'out').iterdir()}
    assert {k: v for k, v in files.items() if k != '.gitattributes'} == local
    _, front, card = local['README.md'].decode().split('---\n', 2)
    about = YAML(typ='safe').load(io.StringIO(front))
    assert about['license'] == 'apache-2.0'
    assert about['library_name'] == 'dreamer-parallel'
    assert {'reinforcement-learning', 'toy_catch'} <= set(about['tags'])
    (entry,) = about['model-index']
    (result,) = entry['results']
    assert (entry['name'], result['dataset']['name']) == ('catcher', 'toy_catch')
    (metric,) = result['metrics']
    assert metric['type'] == 'mean_reward'
    assert metric['value'] == '0.5 +/- 0.25'
    # The library reads the same out of it.
    data = huggingface_hub.ModelCard(local['README.md'].decode()).data
    assert data.eval_results[0].metric_value == '0.5 +/- 0.25'
    assert 'dreamer train --configs tiny\n' in card
    assert f"dreamerv3.load('hf:{REPO}')" in card
    assert '| `image` | uint8 [16, 16, 3] |' in card


def test_eval_play_and_import_take_agents_of_the_hub(
    hub, push, tmp_path, monkeypatch, capsys
):
    monkeypatch.delenv('DISPLAY', raising=False)
    monkeypatch.chdir(tmp_path)
    assert push() == 0
    source = f'hf:{REPO}'
    flags = ['--run.debug', 'True']
    assert main(['eval', source, '--episodes', '2', *flags]) == 0
    # What comes out of it goes to a folder here, not into the cache.
    assert (tmp_path / 'catcher' / 'eval.jsonl').exists()
    assert main(['play', source, *flags]) == 0
    assert (tmp_path / 'catcher' / 'play.gif').exists()
    capsys.readouterr()
    assert main(['import', source, '--check', '--logdir', str(tmp_path / 'run')]) == 0
    assert 'parameters taken' in capsys.readouterr().out


def test_a_second_push_is_a_new_version_and_the_old_one_stays(hub, push, catch_run):
    assert push() == 0
    first, _ = hub.snapshot(REPO, 'main')
    assert push('--license', 'mit', out='again') == 0
    second, _ = hub.snapshot(REPO, 'main')
    assert first != second
    text = lambda revision: hub.snapshot(REPO, revision)[1]['README.md'].decode()
    assert 'license: mit' in text(second) and 'license: mit' not in text(first)
    assert dreamerv3.load(f'hf:{REPO}@{first}').step == 1234
    with pytest.raises(ConfigError, match='no such revision'):
        dreamerv3.load(f'hf:{REPO}@nowhere')


def test_only_files_of_a_bundle_are_fetched_and_code_stays_where_it_is(
    hub, push, tmp_path, monkeypatch
):
    assert push() == 0
    _, files = hub.snapshot(REPO, 'main')
    config = files['config.yaml'].replace(b'toy_catch', b'evil:make')
    hub.commit(REPO, {'config.yaml': config, 'evil.py': b'raise SystemExit(3)'})
    monkeypatch.chdir(tmp_path)
    assert dreamerv3.load(f'hf:{REPO}').config.task == 'evil:make'
    fetched = {x.name for x in (tmp_path / 'cache').rglob('*') if x.is_symlink()}
    assert 'agent.json' in fetched and 'evil.py' not in fetched
    from dreamerv3.api.loaded import load_player

    with pytest.raises(TrustError, match=f'hf:{REPO} asks for the task'):
        load_player(f'hf:{REPO}', [], False)


def test_without_a_token_the_login_is_named_and_nothing_is_written(
    hub, push, tmp_path, monkeypatch, capsys
):
    monkeypatch.delenv('HF_TOKEN')
    assert push() == 2
    error = capsys.readouterr().err
    assert 'not logged in' in error and 'hf auth login' in error and 'HF_TOKEN' in error
    monkeypatch.setenv('HF_TOKEN', 'token-of-nobody')
    assert push() == 2
    error = capsys.readouterr().err
    assert 'does not accept your token' in error and 'hf auth login' in error
    assert not (tmp_path / 'out').exists()


def test_a_repository_of_others_is_refused_before_anything_is_written(
    hub, push, tmp_path, monkeypatch, capsys
):
    assert push() == 0
    monkeypatch.setenv('HF_TOKEN', 'token-of-bob')
    capsys.readouterr()
    assert push(out='other') == 2
    error = capsys.readouterr().err
    assert f'may not write to {REPO}' in error and 'belongs to another' in error
    assert not (tmp_path / 'other').exists()


def test_a_name_of_others_is_refused_and_the_bundle_stays(hub, push, tmp_path, capsys):
    assert push(repo='bob/new') == 2
    error = capsys.readouterr().err
    assert 'may not write to bob/new' in error and 'hf upload bob/new' in error
    assert (tmp_path / 'out' / 'agent.json').exists()
    assert push(repo='robots/new', out='ours') == 0  # an organization of ann's


def test_a_repository_with_something_else_is_left_alone(hub, push, capsys):
    hub.repos[REPO] = []
    files = {'.gitattributes': b'', 'README.md': b'Else.', 'pytorch_model.bin': b'123'}
    hub.commit(REPO, files)
    assert push() == 2
    error = capsys.readouterr().err
    assert 'holds something else' in error and 'such as pytorch_model.bin' in error
    assert len(hub.repos[REPO]) == 1


def test_an_unknown_license_is_explained_by_the_hub(hub, push, capsys):
    assert push('--license', 'mine') == 2
    error = capsys.readouterr().err
    assert '"license" must be one of' in error and 'hf upload' in error


def test_repositories_that_are_missing_hidden_or_empty_are_explained(
    hub, push, monkeypatch
):
    with pytest.raises(ConfigError, match='no repository ann/nothing .* may not see'):
        dreamerv3.load('hf:ann/nothing')
    hub.repos['ann/empty'] = []
    hub.commit('ann/empty', {'README.md': b'Nothing yet.'})
    with pytest.raises(CheckpointError, match=r'holds no agent .* agent\.json'):
        dreamerv3.load('hf:ann/empty')
    assert push('--private') == 0
    monkeypatch.delenv('HF_TOKEN')
    with pytest.raises(ConfigError, match='hf auth login'):
        dreamerv3.load(f'hf:{REPO}')
    for name in ('hf:catcher', 'hf:a/b/c', 'hf:', 'hf:/x', f'hf:{REPO}@'):
        with pytest.raises(ConfigError, match='hf:owner/name'):
            dreamerv3.load(name)
    with pytest.raises(ConfigError, match='no name of a repository'):
        dreamerv3.load('hf:a b/c')


def test_without_a_connection_the_cache_is_used_or_missed(
    hub, push, monkeypatch, capsys
):
    assert push() == 0
    dreamerv3.load(f'hf:{REPO}')
    # Nothing listens there.
    monkeypatch.setattr(huggingface_hub.constants, 'ENDPOINT', 'http://127.0.0.1:9')
    assert dreamerv3.load(f'hf:{REPO}').step == 1234
    with pytest.raises(ConfigError, match='cannot be reached, and ann/other'):
        dreamerv3.load('hf:ann/other')
    capsys.readouterr()
    assert push(out='offline') == 2
    error = capsys.readouterr().err
    assert 'cannot be reached' in error and 'HF_ENDPOINT' in error
    monkeypatch.setattr(huggingface_hub.constants, 'HF_HUB_OFFLINE', True)
    assert dreamerv3.load(f'hf:{REPO}').step == 1234


def test_a_private_push_to_a_public_repository_is_refused(hub, push, tmp_path, capsys):
    assert push() == 0
    assert push('--private', out='again') == 2
    assert 'exists and is public' in capsys.readouterr().err
    assert not (tmp_path / 'again').exists()
    assert push('--private', repo='ann/hidden', out='first') == 0
    assert push('--private', repo='ann/hidden', out='second') == 0


def test_a_push_to_nowhere_is_refused(catch_run, tmp_path, capsys):
    argv = ['export', str(catch_run), str(tmp_path / 'out')]
    assert main([*argv, '--push', '']) == 2  # of a variable that is not set
    assert 'names no repository' in capsys.readouterr().err
    assert main([*argv, '--private']) == 2
    assert '--push OWNER/NAME' in capsys.readouterr().err
    assert not (tmp_path / 'out').exists()


def test_pushing_is_for_bundles(catch_run, tmp_path, capsys):
    argv = ['export', str(catch_run), str(tmp_path / 'out'), '--push', REPO]
    assert main([*argv, '--format', 'stablehlo']) == 2
    assert 'are for bundles' in capsys.readouterr().err
