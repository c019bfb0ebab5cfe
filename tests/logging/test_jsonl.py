import json
import signal
import subprocess
import sys

import elements
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embodied.logging import (
    EventFile,
    JsonlOutput,
    Logger,
    ScoreFile,
    read_records,
    read_scores,
)
from embodied.logging.jsonl import LineFile


def test_one_line_per_write_with_step_time_and_scalars(tmp_path):
    step = elements.Counter(5)
    logger = Logger(step, [JsonlOutput(tmp_path)])
    logger.add({'a': 1, 'note': 'hi', 'image': np.zeros((4, 4, 3), np.uint8)})
    step.increment()
    logger.add({'a': 2})
    logger.write()
    logger.add({'a': float('nan')})
    logger.close()
    lines = (tmp_path / 'metrics.jsonl').read_text().splitlines()
    first, second = map(json.loads, lines)
    assert first.pop('time') > 1.7e9
    assert first == {'step': 6, 'a': 1.5, 'note': 'hi'}
    assert second['a'] is None


def test_scores_hold_one_line_per_episode(tmp_path):
    scores = ScoreFile(tmp_path)
    scores.add(10, {'score': np.float32(1), 'length': 7, 'log/x/sum': 3.0}, env=2)
    scores.add(12, {'score': -1.0, 'length': 3}, env=0, is_eval=True)
    scores.close()
    records = read_records(tmp_path / 'scores.jsonl')
    assert all(r.pop('time') > 0 for r in records)
    assert records == [
        {'step': 10, 'env': 2, 'score': 1.0, 'length': 7, 'eval': False},
        {'step': 12, 'env': 0, 'score': -1.0, 'length': 3, 'eval': True},
    ]


@pytest.mark.parametrize('kind', [Logger, elements.Logger])
def test_scores_keep_one_format_when_a_logger_writes_such_a_file_too(
    tmp_path, capsys, kind
):
    outputs = [
        elements.logger.JSONLOutput(tmp_path, 'metrics.jsonl'),
        elements.logger.JSONLOutput(tmp_path, 'scores.jsonl', 'episode/score'),
    ]
    logger = kind(elements.Counter(), outputs)
    scores = ScoreFile(tmp_path, logger)
    assert (
        'output of the logger that writes into the same file' in capsys.readouterr().out
    )
    logger.add({'score': 2.0}, prefix='episode')
    scores.add(10, {'score': 2.0, 'length': 7}, env=1)
    logger.close()
    scores.close()
    assert [x['score'] for x in read_records(tmp_path / 'scores.jsonl')] == [2.0]
    assert read_records(tmp_path / 'metrics.jsonl')[0]['episode/score'] == 2.0


def test_lines_of_another_format_are_no_episodes(tmp_path):
    scores = ScoreFile(tmp_path)
    scores.add(10, {'score': 2.0, 'length': 7}, env=1)
    scores.close()
    with (tmp_path / 'scores.jsonl').open('a') as file:
        file.write('{"step": 10, "episode/score": 2.0}\n')
    assert [x['env'] for x in read_scores(tmp_path)] == [1]


@pytest.mark.parametrize(
    'tail',
    [b'{"step": 3, "a', b'{"step": 3}', b'garbage\n', b'\0\0\0\0', b'7\n{"st', b'\n'],
)
def test_torn_end_is_cut_when_the_file_is_opened_again(tmp_path, tail):
    path = tmp_path / 'x.jsonl'
    path.write_bytes(b'{"step": 1}\n{"step": 2}\n' + tail)
    file = LineFile(path)
    assert file.last() == {'step': 2}
    file.append({'step': 4})
    file.close()
    assert path.read_bytes() == b'{"step": 1}\n{"step": 2}\n{"step": 4}\n'


@given(st.data())
def test_any_cut_of_a_file_keeps_exactly_the_whole_lines(tmp_path_factory, data):
    sizes = data.draw(st.lists(st.integers(0, 200_000), max_size=4))
    records = [{'step': i, 'text': 'x' * size} for i, size in enumerate(sizes)]
    lines = [json.dumps(record).encode() + b'\n' for record in records]
    cut = data.draw(st.integers(0, sum(map(len, lines))))
    path = tmp_path_factory.mktemp('cut') / 'x.jsonl'
    path.write_bytes(b''.join(lines)[:cut])
    LineFile(path).close()
    ends = np.cumsum([len(line) for line in lines])
    assert read_records(path) == records[: int((ends <= cut).sum())]


def test_reader_leaves_a_line_alone_that_is_still_being_written(tmp_path):
    path = tmp_path / 'x.jsonl'
    assert read_records(path) == []
    path.write_bytes(b'{"step": 1}\n{"step":')
    assert read_records(path) == [{'step': 1}]


def test_steps_that_go_back_are_kept_and_announced(tmp_path):
    for steps in ([10, 20, 30], [20, 25], [40]):
        logger = Logger(elements.Counter(), [JsonlOutput(tmp_path)])
        scores = ScoreFile(tmp_path)
        for step in steps:
            logger.step.load(step)
            logger.add({'x': step})
            logger.write()
            scores.add(step, {'score': 0, 'length': 1}, env=0)
        logger.close()
        scores.close()
    for name in ('metrics.jsonl', 'scores.jsonl'):
        kept = [r['step'] for r in read_records(tmp_path / name)]
        assert kept == [10, 20, 30, 20, 25, 40]
    events = read_records(tmp_path / 'events.jsonl')
    assert [(e['event'], e['file'], e['step'], e['kept']) for e in events] == [
        ('rewind', 'metrics.jsonl', 20, 30),
        ('rewind', 'scores.jsonl', 20, 30),
    ]


def test_events_are_appended_in_order(tmp_path):
    for number in range(2):
        events = EventFile(tmp_path)
        events.add('start', number=number)
        events.close()
    records = read_records(tmp_path / 'events.jsonl')
    assert [(r['event'], r['number']) for r in records] == [('start', 0), ('start', 1)]


FULL_DISK = """
import resource, signal, sys
from embodied.logging.jsonl import LineFile
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
file = LineFile(sys.argv[1])
file.append({'text': 'x' * 60})
try:
    file.append({'text': 'y' * 60})
except OSError as error:
    print(error)
file.append({'z': 1})
"""


def test_line_that_does_not_fit_is_taken_back_and_reported(tmp_path):
    path = tmp_path / 'x.jsonl'
    command = [sys.executable, '-c', FULL_DISK, str(path)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 'fit into' in result.stdout
    assert read_records(path) == [{'text': 'x' * 60}, {'z': 1}]


def test_line_survives_a_kill_right_after_it_was_written(tmp_path):
    path = tmp_path / 'x.jsonl'
    code = 'import os, signal, sys\nfrom embodied.logging.jsonl import LineFile\n'
    code += f"LineFile({str(path)!r}).append({{'a': 1}})\n"
    code += 'os.kill(os.getpid(), signal.SIGKILL)'
    done = subprocess.run([sys.executable, '-c', code])
    assert done.returncode == -signal.SIGKILL
    assert read_records(path) == [{'a': 1}]


def test_lines_that_are_no_records_are_left_out(tmp_path, caplog):
    path = tmp_path / 'scores.jsonl'
    path.write_bytes(b'{"step": 1}\n\xff\n[2]\n{"step": 3}\n{"st')
    assert read_records(path) == [{'step': 1}, {'step': 3}]
    assert f'{path}: 2 lines are damaged' in caplog.text
