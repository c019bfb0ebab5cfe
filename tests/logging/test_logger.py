import elements
import ml_dtypes
import numpy as np
import pytest

from embodied.logging import JsonlOutput, Logger, read_records
from embodied.logging.logger import scalars


class Keep:
    def __init__(self):
        self.writes = []

    def __call__(self, entries):
        self.writes.append(entries)


class Broken:
    def __init__(self):
        self.calls = 0

    def __call__(self, entries):
        self.calls += 1
        raise OSError('disk on fire')


def test_metrics_carry_prefix_and_step_of_their_moment():
    step, output = elements.Counter(), Keep()
    logger = Logger(step, [output])
    logger.add({'score': 1.5})
    step.increment(10)
    logger.add({'loss': np.float32(2)}, prefix='train')
    logger.write()
    logger.write()
    assert len(output.writes) == 1, 'an empty write reaches no output'
    found = [(s, name, float(value)) for s, name, value in output.writes[0]]
    assert found == [(0, 'score', 1.5), (10, 'train/loss', 2.0)]


def test_failing_output_is_reported_once_and_the_others_go_on(capfd):
    broken, good = Broken(), Keep()
    logger = Logger(elements.Counter(), [broken, good])
    for _ in range(3):
        logger.add({'x': 1})
        logger.write()
    logger.close()
    assert broken.calls == 1
    assert len(good.writes) == 3
    message = capfd.readouterr().err
    assert message.count('disk on fire') == 1
    assert 'Broken' in message


@pytest.mark.parametrize(
    'value', [np.zeros((1, 1, 1, 1, 1)), np.array(['a', 'b']), object(), 1j]
)
def test_values_that_no_output_can_show_are_refused_by_name(value):
    logger = Logger(elements.Counter(), [])
    with pytest.raises(ValueError, match='train/odd'):
        logger.add({'odd': value}, prefix='train')


def test_bfloat16_is_a_number():
    output = Keep()
    logger = Logger(elements.Counter(), [output])
    logger.add({'x': np.asarray(1.5, ml_dtypes.bfloat16)})
    logger.write()
    assert scalars(output.writes[0]) == {'x': 1.5}


def test_scalars_of_a_write_are_averaged_by_name():
    entries = [
        (1, 'a', np.asarray(1.0)),
        (2, 'a', np.asarray(4.0)),
        (2, 'b', np.asarray(True)),
        (2, 'text', 'hello'),
        (2, 'image', np.zeros((2, 2, 3))),
    ]
    assert scalars(entries) == {'a': 2.5, 'b': 1.0}


def test_outputs_of_elements_work_with_our_logger_and_ours_with_theirs(tmp_path):
    theirs = elements.logger.JSONLOutput(tmp_path / 'theirs', parallel=True)
    (tmp_path / 'ours').mkdir()
    ours = JsonlOutput(tmp_path / 'ours')
    for logger_class in (Logger, elements.Logger):
        logger = logger_class(elements.Counter(7), [theirs, ours])
        logger.add({'x': 3.0}, prefix='train')
        logger.write()
    theirs.wait()
    for folder in ('theirs', 'ours'):
        records = read_records(tmp_path / folder / 'metrics.jsonl')
        assert [(r['step'], r['train/x']) for r in records] == [(7, 3.0)] * 2
