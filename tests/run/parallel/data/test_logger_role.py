"""The logger role: one step for everything, episodes by environment, clean ends."""

import collections
import contextlib
import json
import threading

import data_parts as parts
import elements
import numpy as np
import pytest
from data_parts import DEADLINE, Worker

from embodied.logging import JsonlOutput, Logger, ScoreFile, read_records
from embodied.run.parallel import parallel_logger
from embodied.run.parallel.context import RoleContext
from embodied.run.parallel.logger.logger import LoggerService
from embodied.transport import RemoteError


def make_service(logdir, logger=None, **changes):
    logger = logger or Logger(elements.Counter(), [JsonlOutput(logdir)])
    context = parts.make_context(logdir, **changes)
    return LoggerService(logger, ScoreFile(logdir), context)


def make_trans(*rows):
    """Admission (reward, first, last, log/wood) of one step each."""
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    keys = ('reward', 'is_first', 'is_last', 'log/wood')
    return dict(zip(keys, columns, strict=True))


def send(service, trans, envids, is_eval=None, steps=0):
    """Rows with the next serial number of each environment."""
    is_eval = np.zeros(len(envids), bool) if is_eval is None else np.array(is_eval)
    counts = service.__dict__.setdefault('counts', collections.Counter())
    counts.update(envids)
    serials = np.array([counts[envid] for envid in envids])
    trans = {**trans, 'serial': serials}
    service.tran(trans, np.array(envids, np.int32), is_eval, steps)


FIRST, MIDDLE, LAST = (0.0, True, False, 1), (2.0, False, False, 5), (1, False, True, 3)


def test_episodes_are_followed_per_environment(tmp_path):
    service = make_service(tmp_path)
    send(service, make_trans(FIRST, FIRST), [0, 1], steps=2)
    send(service, make_trans(MIDDLE, LAST), [0, 1], steps=4)
    send(service, make_trans(LAST, FIRST), [0, 1], steps=6)
    service.write()
    scores = [
        {k: v for k, v in record.items() if k != 'time'}
        for record in read_records(tmp_path / 'scores.jsonl')
    ]
    assert scores == [
        {'step': 4, 'env': 1, 'score': 1.0, 'length': 1, 'eval': False},
        {'step': 6, 'env': 0, 'score': 3.0, 'length': 2, 'eval': False},
    ]
    (line,) = read_records(tmp_path / 'metrics.jsonl')
    assert line['step'] == 6
    assert line['episode/score'] == 2.0
    assert line['episode/length'] == 1.5
    assert line['episode/log/wood/sum'] == (4 + 9) / 2
    assert line['episode/log/wood/avg'] == (2 + 3) / 2
    assert line['episode/log/wood/max'] == (3 + 5) / 2


def test_several_steps_of_an_environment_may_come_in_one_message(tmp_path):
    service = make_service(tmp_path)
    send(service, make_trans(FIRST, MIDDLE, MIDDLE, LAST), [3, 3, 3, 3])
    (score,) = read_records(tmp_path / 'scores.jsonl')
    assert (score['env'], score['score'], score['length']) == (3, 5.0, 3)


def test_evaluation_is_never_mixed_with_training(tmp_path):
    service = make_service(tmp_path)
    send(service, make_trans(FIRST, FIRST), [0, 4], [False, True])
    send(service, make_trans(LAST, MIDDLE), [0, 4], [False, True])
    send(service, make_trans(LAST), [4], [True])
    service.write()
    (line,) = read_records(tmp_path / 'metrics.jsonl')
    assert (line['episode/score'], line['eval/score']) == (1.0, 3.0)
    scores = read_records(tmp_path / 'scores.jsonl')
    assert [(x['env'], x['eval']) for x in scores] == [(0, False), (4, True)]


def test_all_metrics_of_a_line_have_one_step_which_never_goes_back(tmp_path):
    service = make_service(tmp_path)
    service.add({'loss': 2.0}, 'train', 100)
    service.add({'items': 7}, 'replay', 0)  # does not know
    send(service, make_trans(FIRST), [0], steps=110)
    service.add({'env': 5.0}, 'fps', 90)  # was on its way for long
    service.write()
    service.add({'loss': 1.0}, 'train', 95)
    service.write()
    first, second = read_records(tmp_path / 'metrics.jsonl')
    assert first.pop('time') <= second.pop('time')
    assert first == {'step': 110, 'train/loss': 2.0, 'replay/items': 7, 'fps/env': 5.0}
    assert second == {'step': 110, 'train/loss': 1.0}


def test_of_summaries_the_newest_counts_and_of_episodes_the_mean(tmp_path):
    service = make_service(tmp_path)
    service.add({'updates': 10}, 'train', 1)
    service.add({'updates': 20}, 'train', 2)
    for reward in (1.0, 5.0):
        rows = make_trans(FIRST, (reward, False, True, 0))
        send(service, rows, [0, 0])
    service.write()
    (line,) = read_records(tmp_path / 'metrics.jsonl')
    assert (line['train/updates'], line['episode/score']) == (20, 3.0)


def test_abandoned_episodes_have_no_score_and_are_counted(tmp_path):
    service = make_service(tmp_path)
    send(service, make_trans(FIRST, MIDDLE, FIRST, LAST), [0, 0, 0, 0])
    service.write()
    send(service, make_trans(LAST), [1])  # whose beginning was not sent
    service.write()
    (line,) = read_records(tmp_path / 'metrics.jsonl')
    assert (line['episode/abandoned'], line['episode/score']) == (1, 1.0)
    assert len(read_records(tmp_path / 'scores.jsonl')) == 1


def test_an_environment_that_falls_silent_loses_its_episode(tmp_path):
    service = make_service(tmp_path, episode_timeout=1e-9)
    send(service, make_trans(FIRST, FIRST), [0, 4], [False, True])
    service.write()
    send(service, make_trans(LAST), [0])
    service.write()
    (line,) = read_records(tmp_path / 'metrics.jsonl')
    assert (line['episode/timeouts'], line['eval/timeouts']) == (1, 1)
    assert not read_records(tmp_path / 'scores.jsonl')


def test_without_a_timeout_episodes_may_take_as_long_as_they_want(tmp_path):
    service = make_service(tmp_path, episode_timeout=0.0)
    send(service, make_trans(FIRST), [0])
    service.write()
    send(service, make_trans(LAST), [0])
    assert len(read_records(tmp_path / 'scores.jsonl')) == 1


def test_pictures_pass_through(tmp_path):
    entries = []
    logger = elements.Logger(elements.Counter(), [entries.extend])
    service = make_service(tmp_path, logger)
    video = np.zeros((2, 4, 4, 3), np.uint8)
    service.add({'film/image': video}, 'episode', 5)
    service.write()
    assert [(step, name, value.shape) for step, name, value in entries] == [
        (5, 'episode/film/image', (2, 4, 4, 3))
    ]


def test_a_restart_continues_at_the_saved_step(tmp_path):
    service = make_service(tmp_path)
    service.add({'loss': 1.0}, 'train', 50)
    other = make_service(tmp_path)
    other.load(json.loads(json.dumps(service.save())))
    other.add({'loss': 1.0}, 'train', 0)
    other.write(last=True)
    assert read_records(tmp_path / 'metrics.jsonl')[-1]['step'] == 50


@contextlib.contextmanager
def running(logdir, make_logger, **changes):
    args = parts.make_args(logdir, **changes)
    context = RoleContext.of(args)
    role = Worker(parallel_logger, make_logger, args)
    with context.make_client(args.logger_addr, 'test') as client:
        try:
            yield client
        finally:
            role.check()
        told = client.call('finish', 17)
        role.join()
        del told  # its answer may be lost when the server goes


def test_episodes_of_which_rows_are_missing_have_no_score(tmp_path):
    service = make_service(tmp_path)
    send(service, make_trans(FIRST, FIRST), [0, 1])
    service.counts[0] += 1  # a row of environment 0 was dropped on its way
    send(service, make_trans(MIDDLE, MIDDLE), [0, 1])
    send(service, make_trans(LAST, LAST), [0, 1])
    service.counts[1] += 1  # this one lies between two episodes
    send(service, make_trans(FIRST, FIRST), [0, 1])
    send(service, make_trans(LAST, LAST), [0, 1])
    service.write()
    scores = read_records(tmp_path / 'scores.jsonl')
    assert [(x['env'], x['length']) for x in scores] == [(1, 2), (0, 1), (1, 1)]
    (line,) = read_records(tmp_path / 'metrics.jsonl')
    assert line['episode/torn'] == 1 and 'episode/abandoned' not in line


def test_a_restored_logger_writes_nothing_before_it_knows_the_step(tmp_path):
    service = make_service(tmp_path)
    service.load({'step': 10})
    service.add({'loss': 1.0}, 'train', 0)
    service.write()
    assert read_records(tmp_path / 'metrics.jsonl') == []
    service.add({'fill': 1.0}, 'replay', 25)
    service.write()
    (line,) = read_records(tmp_path / 'metrics.jsonl')
    assert (line['step'], line['train/loss'], line['replay/fill']) == (25, 1.0, 1.0)


@pytest.mark.parametrize('transport', ['native', 'portal'])
def test_the_role_writes_what_it_has_when_the_run_ends(tmp_path, transport):
    entries = []
    make = lambda: elements.Logger(elements.Counter(), [entries.extend])
    with running(tmp_path, make, transport=transport) as client:
        client.call('add', {'loss': 0.5}, 'train', 12).result(DEADLINE)
        rows = {**make_trans(FIRST, LAST), 'serial': np.arange(2)}
        envids = np.zeros(2, np.int32)
        client.call('tran', rows, envids, np.zeros(2, bool), 14).result(DEADLINE)
        assert entries == []  # log_every is 0
    assert {step for step, _, _ in entries} == {17}
    named = {name: float(value) for _, name, value in entries}
    assert named['train/loss'] == 0.5 and named['episode/score'] == 1.0
    with running(tmp_path, make) as client:
        client.call('add', {'loss': 0.5}, 'train', 0).result(DEADLINE)
    assert entries[-1][0] == 17


def test_the_role_writes_every_few_seconds(tmp_path):
    written = threading.Event()
    make = lambda: elements.Logger(elements.Counter(), [lambda _: written.set()])
    with running(tmp_path, make, log_every=0.01) as client:
        client.call('add', {'loss': 0.5}, 'train', 12).result(DEADLINE)
        assert written.wait(DEADLINE)


def test_a_metric_that_cannot_be_logged_is_the_senders_error(tmp_path):
    make = lambda: elements.Logger(elements.Counter(), [lambda _: None])
    with running(tmp_path, make) as client:
        with pytest.raises(RemoteError, match="Metric 'train/loss' is None"):
            client.call('add', {'loss': None}, 'train', 1).result(DEADLINE)
        client.call('add', {'loss': 1.0}, 'train', 1).result(DEADLINE)
