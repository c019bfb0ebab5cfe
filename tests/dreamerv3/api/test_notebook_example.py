"""The notebook among the examples: stored without outputs, and run by a real kernel."""

import ast
import pathlib

import pytest

nbformat = pytest.importorskip('nbformat', reason='needs: pip install nbformat')

NOTEBOOK = pathlib.Path(__file__).parents[3] / 'examples' / 'cartpole.ipynb'
DEADLINE = 600  # seconds of one cell


def read():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    return notebook


def text_of(cell):
    """What a cell has printed or returned as text."""
    found = []
    for output in cell.outputs:
        found.append(output.get('text', ''))
        found.append(output.get('data', {}).get('text/plain', ''))
    return ''.join(found)


def kinds_of(cell):
    return {kind for x in cell.outputs for kind in x.get('data', {})}


def test_the_notebook_is_stored_without_outputs():
    cells = [cell for cell in read().cells if cell.cell_type == 'code']
    assert all(cell.outputs == [] and not cell.execution_count for cell in cells)
    assert all(ast.parse(cell.source).body for cell in cells)
    assert NOTEBOOK.stat().st_size < 20_000


@pytest.mark.long
def test_the_notebook_trains_draws_evaluates_and_plays(tmp_path, monkeypatch):
    client = pytest.importorskip('nbclient', reason='needs: pip install nbclient')
    pytest.importorskip('ipykernel', reason='needs: pip install ipykernel')
    monkeypatch.setenv('CARTPOLE_STEPS', '600')
    monkeypatch.setenv('CARTPOLE_LOGDIR', str(tmp_path / 'run'))
    where = {'metadata': {'path': str(tmp_path)}}
    notebook = read()
    client.NotebookClient(notebook, timeout=DEADLINE, resources=where).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == 'code']
    _, train, curve, evaluate, watch, film = cells
    assert "state='finished', reason='run.steps'" in text_of(train)
    assert '100%' in text_of(train)  # the display below the cell
    assert 'image/png' in kinds_of(curve)
    assert "'episodes': 10" in text_of(evaluate)
    assert 8 <= float(text_of(watch)) <= 500  # an episode of CartPole
    assert 'image/gif' in kinds_of(film)
