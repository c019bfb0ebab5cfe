"""States of runs: what they say, unless it cannot be true any more."""

import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sample_runs import append, line, make_run, write_status

from dreamerv3.dashboard.runs.folders import Run, find_runs
from dreamerv3.dashboard.runs.options import group_key, read_options
from dreamerv3.dashboard.runs.state import read_events, run_state
from dreamerv3.dashboard.runs.summary import Summarizer


def rewrite_status(folder, **changes):
    path = folder / 'status.json'
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    'changes, state, role',
    [
        ({}, 'running', 'waiting'),
        ({'state': 'failed', 'pid': 2**22 + 1}, 'failed', 'dead'),
        ({'state': 'finished', 'pid': 2**22 + 1}, 'finished', 'dead'),
        ({'state': 'stopped', 'pid': 2**22 + 1}, 'stopped', 'dead'),
        ({'state': 'killed', 'pid': 2**22 + 1}, 'killed', 'dead'),
        ({'state': 'done', 'pid': 2**22 + 1}, 'done', 'dead'),  # version 0.1.0
        ({'pid': 2**22 + 1}, 'dead', 'dead'),  # no such process
        ({'started': 1.0}, 'dead', 'dead'),  # another process of this number
        ({'boot': 'before'}, 'dead', 'dead'),  # the machine was booted since
        ({'uptime': 0.0}, 'silent', 'waiting'),
        ({'host': 'far', 'heartbeat': 1e12}, 'running', 'waiting'),
        ({'host': 'far', 'heartbeat': 1.0}, 'unknown', 'waiting'),
        ({'state': 'flying'}, 'unknown', 'waiting'),
    ],
)
def test_only_a_living_launcher_is_believed(tmp_path, changes, state, role):
    write_status(tmp_path, replay='waiting')
    rewrite_status(tmp_path, **changes)
    found = run_state(tmp_path, [])
    assert found['state'] == state
    assert found['roles']['replay']['state'] == role


def test_a_role_that_starts_again_is_not_back_yet(tmp_path):
    again = {'state': 'starting', 'restarts': 2}
    write_status(tmp_path, env0=again, env8='starting', agent={'restarts': 1})
    found = run_state(tmp_path, [])
    states = {name: role['state'] for name, role in found['roles'].items()}
    assert states['env0'] == 'restarting'
    assert states['env8'] == 'starting'
    assert found['restarts'] == 3


def test_a_role_says_what_takes_it_long(tmp_path):
    doing = {'activity': 'compiling', 'doing': 'compiling train for 34 s'}
    write_status(tmp_path, agent=doing, replay={'activity': 'saving'})
    roles = run_state(tmp_path, [])['roles']
    assert roles['agent']['activity'] == 'compiling train for 34 s'
    assert roles['replay']['activity'] == 'saving'


def test_events_tell_the_state_of_a_run_without_a_status():
    here = {'pid': os.getpid(), 'host': platform.node(), 'time': time.time()}
    with subprocess.Popen([sys.executable, '-c', '']) as ended:
        pass
    start = {'event': 'start'}
    cases = [
        ([], 'unknown'),
        ([here | start], 'running'),
        ([here | start | {'pid': ended.pid}], 'dead'),
        ([here | start | {'time': 1.0}], 'dead'),  # this process began later
        ([here | start | {'host': 'far'}], 'unknown'),
        ([here | start, {'event': 'stop', 'reason': 'done'}], 'done'),
        ([here | start, stop('finished', 'run.steps')], 'finished'),
        ([here | start, stop('stopped', 'SIGTERM')], 'stopped'),
        ([here | start, stop('killed', 'SIGTERM')], 'killed'),
        ([here | start, stop('flying', '')], 'unknown'),
        ([here | start, {'event': 'stop', 'reason': 'EnvError: no'}], 'failed'),
        ([{'event': 'stop', 'reason': 'done'}, here | {'event': 'resume'}], 'running'),
        ([here | start, {'event': 'rewind'}], 'running'),
    ]
    for events, state in cases:
        assert run_state(Path(os.devnull), events)['state'] == state, events


def stop(state, reason):
    return {'event': 'stop', 'state': state, 'reason': reason}


def test_the_reason_of_an_end_is_told(tmp_path):
    events = [stop('stopped', 'run.duration')]
    assert run_state(tmp_path, events)['reason'] == 'run.duration'
    write_status(tmp_path)
    rewrite_status(tmp_path, state='stopped', reason='SIGHUP')
    assert run_state(tmp_path, events)['reason'] == 'SIGHUP'


def test_runs_that_differ_by_seed_are_one_group(tmp_path):
    keys = [
        group_key(read_options(make_run(tmp_path / name, 1, **given) / 'config.yaml'))
        for name, given in [
            ('a', {'seed': 0}),
            ('b', {'seed': 1}),
            ('c', {'envs': 2}),
            ('d', {'task': 'toy_reach'}),
        ]
    ]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3
    assert group_key({}) == ''


def test_runs_are_found_in_nested_folders_but_not_inside_of_runs(tmp_path):
    for name in ('one', 'deep/er/two', 'one/inside', '.hidden/three'):
        make_run(tmp_path / name, 1)
    assert [run.name for run in find_runs([tmp_path])] == ['deep/er/two', 'one']
    (single,) = find_runs([tmp_path / 'one'])
    assert single.name == 'one'
    both = find_runs([tmp_path / 'one', tmp_path / 'deep'])
    assert [run.name for run in both] == ['one', 'deep/er/two']
    assert len({run.id for run in both}) == 2


@pytest.mark.parametrize(
    'metrics, words',
    [
        ({'learner/reports': 0.4}, 'report-bound: reports hold training up 40%'),
        ({'learner/saves': 0.3}, 'save-bound: saves hold training up 30%'),
        ({'replay/fill': 0.5}, 'filling replay: 50%'),
        ({'learner/wait': 0.9, 'replay/sample_wait': 0.9}, 'policy-bound: '),
        ({'learner/wait': 'long', 'learner/saves': [1]}, 'learner-bound: '),
    ],
)
def test_a_summary_names_the_bottleneck(tmp_path, metrics, words):
    folder = make_run(tmp_path / 'run', 5)
    for index in range(6):
        append(folder / 'metrics.jsonl', line(5 + index) | metrics)
    summary = Summarizer().summary(Run('0', 'run', folder))
    assert summary['bottleneck'].startswith(words)


def test_a_summary_has_the_newest_of_each_metric(tmp_path):
    folder = make_run(tmp_path / 'run', 5)
    append(folder / 'metrics.jsonl', {'step': 700, 'time': 9.0, 'fps/train': 2.5})
    append(folder / 'events.jsonl', {'time': 9.0, 'event': 'resume', 'pid': 1})
    summary = Summarizer().summary(Run('0', 'run', folder))
    assert summary['step'] == 700
    assert summary['latest']['fps/train'] == 2.5
    assert summary['latest']['fps/env'] == 118.0
    assert summary['resumes'] == 1
    assert len(read_events(folder)) == 3
