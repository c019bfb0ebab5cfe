"""Metrics of version 0.1.0 have the names of today in charts."""

import pytest

from dreamerv3.dashboard.series.records import (
    current_name,
    metrics_record,
    scores_record,
)


@pytest.mark.parametrize(
    ('former', 'name'),
    [
        ('eval_episode/score', 'eval/score'),
        ('eval_episode/log/visits/max', 'eval/log/visits/max'),
        ('scores/eval_score', 'scores/eval/score'),
        ('scores/eval_length', 'scores/eval/length'),
        ('episode/score', 'episode/score'),
        ('eval/score', 'eval/score'),
    ],
)
def test_a_metric_has_one_name(former, name):
    assert current_name(former) == name


def test_old_lines_of_evaluation_episodes_are_read():
    line = {'step': 1, 'time': 2, 'eval_episode/score': 3, 'eval_episode/length': 4}
    assert read(metrics_record, line) == {'eval/score': 3, 'eval/length': 4}


def test_the_mean_of_an_evaluation_counts_where_old_lines_have_both():
    line = {'step': 1, 'time': 2, 'eval/score': 5, 'eval_episode/score': 3}
    assert read(metrics_record, line) == {'eval/score': 5}


@pytest.mark.parametrize(
    ('is_eval', 'name'), [(True, 'scores/eval/score'), (False, 'scores/score')]
)
def test_scores_of_evaluations_are_apart(is_eval, name):
    line = {'step': 1, 'time': 2, 'score': 3.0, 'length': 4, 'eval': is_eval}
    assert read(scores_record, line)[name] == 3.0


def read(parse, line):
    *_, values = parse(dict(line))
    return values
