"""One second of a whole run, with every role in it."""

import collections
import json

import pytest
from combined_runs import run_combined

MICRO = 1_000_000
ROLES = {'agent', 'replay', 'logger', 'env0', 'env1', 'env2', 'eval0'}


@pytest.mark.long  # All roles are to be at work when the second begins.
def test_a_timeline_has_what_every_role_does_within_one_second(tmp_path):
    changes = {'steps': 1e9, 'duration': 30.0, 'timeline': 25.0, 'eval_every': 1}
    run_combined(tmp_path, envs_per_worker=1, log_every=0.2, **changes)
    events = json.loads((tmp_path / 'timeline.json').read_text())['traceEvents']
    roles = {x['pid']: x['args']['name'] for x in events if x['name'] == 'process_name'}
    assert set(roles.values()) == ROLES
    spans = [x for x in events if x['ph'] == 'X']
    assert all(0 <= x['ts'] <= x['ts'] + x['dur'] <= MICRO for x in spans)
    named = collections.defaultdict(set)
    for span in spans:
        named[roles[span['pid']]].add(span['name'])
    assert named['agent'] >= {'policy', 'insert', 'train', 'fetch'}
    assert named['replay'] >= {'add_batch', 'wait', 'sample_batch_train'}
    assert named['logger'] >= {'add', 'tran', 'write'}
    assert named['env1'] == {'step', 'act'}
    check_nesting(spans)


def check_nesting(spans):
    """Of two spans of a thread, one lies within the other or before it."""
    threads = collections.defaultdict(list)
    for span in spans:
        threads[span['pid'], span['tid']].append((span['ts'], -span['dur']))
    for mine in threads.values():
        open_ends = []
        for begin, minus_duration in sorted(mine):
            end = begin - minus_duration
            while open_ends and open_ends[-1] <= begin:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1]
            open_ends.append(end)
