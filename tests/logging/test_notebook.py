"""The view of a run in a real notebook kernel."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip('ipykernel', reason='notebook tests need: pip install ipykernel')
manager = pytest.importorskip(
    'jupyter_client.manager', reason='notebook tests need: pip install jupyter_client'
)

DEADLINE = 120  # seconds for a message of the kernel
CELL = """
import elements
from embodied.logging import Logger
from embodied.logging.terminal import TerminalOutput
step = elements.Counter()
logger = Logger(step, [TerminalOutput('toy_catch', steps=200)])
for score in (0.25, 0.5, 0.75):
    step.increment(50)
    logger.add({'episode/score': score, 'fps/env': 310.0})
    logger.write()
logger.close()
"""

TRAIN = """
import dreamerv3
dreamerv3.train(
    task='toy_reach', script='parallel', configs=['debug'], steps=400,
    logdir={logdir!r},
    options={{
        'random_agent': True, 'run.envs': 2, 'run.eval_envs': 0,
        'run.log_every': 0.2, 'run.report_every': 0,
    }},
)
"""
SHOWN = ('display_data', 'update_display_data')


@contextlib.contextmanager
def kernel() -> Iterator[Any]:
    """A client of a kernel in a process of its own."""
    server, client = manager.start_new_kernel(startup_timeout=DEADLINE)
    try:
        yield client
    finally:
        client.stop_channels()
        server.shutdown_kernel(now=True)
        server.context.destroy()


def run_cell(client: Any, code: str) -> list[tuple[str, dict[str, Any]]]:
    """Kinds and contents of all outputs of a cell."""
    ident, found = client.execute(code), []
    while True:
        message = client.get_iopub_msg(timeout=DEADLINE)
        kind, content = message['msg_type'], message['content']
        if message['parent_header'].get('msg_id') != ident:
            continue
        if kind == 'status' and content['execution_state'] == 'idle':
            return found
        if kind not in ('status', 'execute_input'):
            found.append((kind, content))


def test_a_run_is_one_display_that_is_replaced_by_its_newest_state():
    with kernel() as client:
        outputs = run_cell(client, CELL)
    kinds = [kind for kind, _ in outputs]
    assert kinds == ['display_data', 'update_display_data', 'update_display_data']
    assert len({content['transient']['display_id'] for _, content in outputs}) == 1
    first, *_, last = (content['data'] for _, content in outputs)
    assert 'score 0.25' in first['text/plain']
    assert 'score 0.5' in last['text/plain']  # the mean of the newest
    assert 'step 150 / 200' in last['text/plain']
    assert last['text/html'].startswith('<pre')
    assert 'toy_catch' in last['text/html']


def test_a_distributed_run_is_shown_below_its_cell(tmp_path):
    with kernel() as client:
        outputs = run_cell(client, TRAIN.format(logdir=str(tmp_path)))
    shown = [content for kind, content in outputs if kind in SHOWN]
    assert len({content['transient']['display_id'] for content in shown}) == 1
    last = shown[-1]['data']['text/plain']
    assert ' / 400' in last and '100%' in last
    # Its logger would draw with control characters, which a cell does not follow.
    text = ''.join(x['text'] for kind, x in outputs if kind == 'stream')
    assert '\x1b[' not in text
