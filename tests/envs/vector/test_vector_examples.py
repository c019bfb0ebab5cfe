"""The examples of vector environments run as they are."""

import pathlib
import runpy
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).parents[3] / 'examples'
# Too few for an update, which would have to be compiled: 8 of each of the 8 members.
STEPS = 64


def run(script, args, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, 'argv', [script, *map(str, args)])
    runpy.run_path(str(EXAMPLES / script), run_name='__main__')
    return capsys.readouterr().out


@pytest.mark.parametrize(
    'script', ['gymnasium_vector.py', 'own_vector.py', 'jax_environment.py']
)
def test_vector_environments_are_trained_on(script, monkeypatch, tmp_path, capsys):
    out = run(script, [STEPS, 'debug'], monkeypatch, tmp_path, capsys)
    assert ' episodes, the last ones scored ' in out


@pytest.mark.parametrize(
    ('module', 'task'),
    [('gymnax', 'gymnax:CartPole-v1'), ('envpool', 'envpool:CartPole-v1')],
)
def test_tasks_of_libraries(module, task, monkeypatch, tmp_path, capsys):
    extra = f"needs {module}: pip install 'dreamer-parallel[{module}]'"
    pytest.importorskip(module, reason=extra)
    args = [task, STEPS, 'debug']
    out = run('library_task.py', args, monkeypatch, tmp_path, capsys)
    assert ' episodes, the last ones scored ' in out
