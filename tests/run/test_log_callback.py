"""The callback of the user: what it is told, and how it ends a loop."""

import math
import threading

import numpy as np
import pytest
import run_parts as parts

import embodied
from embodied.core.checkpoint import load_part
from embodied.core.errors import ConfigError
from embodied.logging import JsonlOutput, read_records
from embodied.run.shared.log_callback import LogCallback, StopRun
from embodied.run.shared.outcome import Outcome

ENTRIES = [
    (70, 'train/loss', np.float32(2)),
    (70, 'train/loss', np.float32(4)),
    (70, 'note', 'a text'),
    (70, 'report/image', np.zeros((4, 4, 3), np.uint8)),
    (70, 'train/scale', np.float32(np.inf)),
]


def train(logdir, on_log, loop='train', **changes):
    """A run of parts that write each of their turns; its outcome."""
    changes = {'log_every': -1.0, **changes}
    args = parts.make_args(logdir, **changes)
    entries = []

    def make_logger():
        logger = parts.make_logger(entries)
        logger.outputs.append(JsonlOutput(logdir))
        return logger

    if loop == 'train':
        makers = parts.Agent, parts.SaveableReplay, parts.SaveableEnv, parts.Stream
        return embodied.run.train(*makers, make_logger, args, on_log)
    replays = parts.SaveableReplay, parts.SaveableReplay
    envs = parts.SaveableEnv, parts.SaveableEnv
    makers = parts.Agent, *replays, *envs, parts.Stream
    return embodied.run.train_eval(*makers, make_logger, args, on_log)


def call_once(answer):
    """Reasons for which a callback with this behavior asks for the end of the run."""
    calls, reasons = [], []

    def on_log(step, metrics):
        calls.append((step, metrics))
        return answer()

    with LogCallback(on_log, reasons.append) as callback:
        callback(ENTRIES)
        callback(ENTRIES)
    return calls, reasons


def fail():
    raise OSError('the disk is full')


def stop(text=''):
    raise StopRun(text) if text else StopRun


def test_it_gets_the_step_and_the_numbers_of_a_log():
    calls, _ = call_once(lambda: None)
    assert len(calls) == 2
    step, metrics = calls[0]
    assert step == 70
    assert metrics.keys() == {'train/loss', 'train/scale'}
    assert metrics['train/loss'] == 3.0  # as in metrics.jsonl: the mean
    assert math.isnan(metrics['train/scale'])


@pytest.mark.parametrize(
    ('answer', 'reasons'),
    [
        (lambda: None, []),
        (lambda: False, []),
        (lambda: np.bool_(False), []),
        (lambda: True, ['on_log']),
        (lambda: np.bool_(True), ['on_log']),
        (stop, ['on_log']),
        (lambda: stop('pruned'), ['on_log: pruned']),
    ],
)
def test_it_stops_the_run_by_its_answer_or_by_an_exception(answer, reasons):
    calls, found = call_once(answer)
    assert found == reasons
    assert len(calls) == (1 if reasons else 2)  # not called again


@pytest.mark.parametrize('answer', ['stop', 0, 1, {}, np.float32(1)])
def test_other_answers_are_refused(answer):
    with pytest.raises(ConfigError, match='returns True to stop'):
        call_once(lambda: answer)


def test_its_error_waits_for_the_end_of_the_context():
    reasons = []
    on_log = lambda step, metrics: fail()
    with (
        pytest.raises(OSError, match='disk is full'),
        LogCallback(on_log, reasons.append) as callback,
    ):
        callback(ENTRIES)
        assert reasons == ['on_log']
        reasons.append('the run goes on to its save')
    assert len(reasons) == 2


def test_its_error_is_not_lost_when_the_run_fails_after_it():
    with (
        pytest.raises(RuntimeError, match='no save') as caught,
        LogCallback(lambda step, metrics: fail(), print) as callback,
    ):
        callback(ENTRIES)
        raise RuntimeError('no save')
    assert 'on_log raised OSError: the disk is full' in caught.value.__notes__[0]


def test_a_logger_without_outputs_is_refused():
    with pytest.raises(ConfigError, match='list of `outputs`'):
        LogCallback(lambda step, metrics: None, print).join(object())
    LogCallback(None, print).join(object())  # nothing to call


@pytest.mark.parametrize('loop', ['train', 'train_eval'])
def test_a_stopped_loop_saves_and_goes_on_where_it_was(tmp_path, loop):
    steps = []

    def on_log(step, metrics):
        steps.append(step)
        return step >= 60

    assert train(tmp_path, on_log, loop) == Outcome('stopped', 'on_log')
    assert steps[-1] == 60
    progress = load_part(tmp_path, 'progress')
    assert progress['steps'] == 60 and not progress['complete']
    ended = read_records(tmp_path / 'events.jsonl')[-1]
    assert (ended['state'], ended['reason']) == ('stopped', 'on_log')
    steps.clear()
    again = lambda step, metrics: steps.append(step)
    assert train(tmp_path, again, loop) == Outcome('finished', 'run.steps')
    assert steps[0] >= 60 and steps[-1] == 200


def test_it_sees_what_the_files_of_the_run_hold(tmp_path):
    seen = []
    train(tmp_path, lambda step, metrics: seen.append((step, metrics)))
    records = read_records(tmp_path / 'metrics.jsonl')
    for record in records:
        del record['time']
    assert [{'step': step, **metrics} for step, metrics in seen] == records
    assert any('episode/score' in metrics for _, metrics in seen)


def test_its_error_reaches_the_caller_after_a_last_save(tmp_path):
    def on_log(step, metrics):
        if step >= 60:
            fail()

    with pytest.raises(OSError, match='the disk is full'):
        train(tmp_path, on_log)
    assert load_part(tmp_path, 'progress')['steps'] == 60


def test_a_stop_at_the_last_log_changes_nothing(tmp_path):
    on_log = lambda step, metrics: step >= 200
    outcome = train(tmp_path, on_log, log_every=0.0)
    assert outcome == Outcome('finished', 'run.steps')
    assert load_part(tmp_path, 'progress')['complete']


def test_it_stops_a_loop_that_is_not_in_the_main_thread(tmp_path):
    # As Ray Tune and `study.optimize(n_jobs=2)` call it.
    found = []
    on_log = lambda step, metrics: step >= 60
    work = lambda: found.append(train(tmp_path, on_log))
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [Outcome('stopped', 'on_log')]
