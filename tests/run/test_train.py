"""The training loop with foreign parts: counting, logging, limits, errors."""

import os
import signal
import subprocess
import sys
import threading

import elements
import numpy as np
import pytest
import run_parts as parts

import embodied
from embodied.core.checkpoint import load_part, load_part_and_step
from embodied.core.errors import CheckpointError, NonFiniteError
from embodied.logging import read_records
from embodied.processes import usage
from embodied.processes.signals import REPEAT
from embodied.run.shared import meters


def run(
    logdir,
    agent=None,
    replay=parts.SaveableReplay,
    env=parts.SaveableEnv,
    entries=None,
    **changes,
):
    agent = agent or parts.Agent()
    embodied.run.train(
        lambda: agent,
        replay,
        env,
        parts.Stream,
        lambda: parts.make_logger(entries),
        parts.make_args(logdir, **changes),
    )
    return agent


def names(entries):
    return {name for _, name, _ in entries}


def values(entries, name):
    return [float(value) for _, key, value in entries if key == name]


@pytest.mark.parametrize(
    ('changes', 'steps', 'updates'),
    [
        # minimum = max(batch 3 * (4 + 1), envs * 4 + 1); 12 replayed steps per update
        ({'steps': 100, 'train_ratio': 4}, 100, (100 - 15) * 4 // 12),
        ({'steps': 101, 'train_ratio': 4}, 102, (102 - 15) * 4 // 12),
        ({'steps': 15, 'train_ratio': 4}, 16, 0),
        ({'steps': 100, 'train_ratio': 0.5}, 100, 3),
        ({'steps': 40, 'train_ratio': 33}, 40, 68),
        ({'steps': 100, 'train_ratio': 4, 'envs': 7}, 105, (105 - 29) * 4 // 12),
        ({'steps': 100, 'train_ratio': 4, 'envs': 1}, 100, (100 - 15) * 4 // 12),
        ({'steps': 100, 'train_ratio': 0}, 100, 0),
        ({'steps': 40, 'train_ratio': -1}, 40, 13),  # turns of 2 from 16 to 40
    ],
)
@pytest.mark.parametrize('clocks', [0.0, -1.0])
def test_updates_follow_from_the_steps_alone(tmp_path, changes, steps, updates, clocks):
    every = {'log_every': clocks, 'report_every': clocks, 'save_every': clocks}
    agent = run(tmp_path, **every, **changes)
    progress = load_part(tmp_path, 'progress')
    assert (progress['steps'], progress['updates']) == (steps, updates)
    assert len(agent.trained) == updates


def test_a_replay_that_can_only_add_and_sample_works_also_on_resume(tmp_path):
    first = run(tmp_path, replay=parts.PlainReplay, steps=100)
    assert len(first.trained) == 28
    # It comes back empty and serves again after the minimum of 15 steps.
    second = run(tmp_path, replay=parts.PlainReplay, steps=114)
    assert second.trained == []
    third = run(tmp_path, replay=parts.PlainReplay, steps=100 + 30)
    assert len(third.trained) == (130 - 15) * 4 // 12 - 28


def test_latents_of_updates_reach_the_replay(tmp_path):
    run(tmp_path, steps=60)
    streams = load_part(tmp_path, 'replay')['content']['streams']
    unsent = load_part(tmp_path, 'agent')['unsent']['replay']
    assert unsent['stepid'].shape == (3, 5, 20)

    class Deaf(parts.SaveableReplay):
        update = embodied.Replay.update

    run(tmp_path / 'deaf', replay=Deaf, steps=60)
    other = load_part(tmp_path / 'deaf', 'replay')['content']['streams']
    assert repr(streams[0][0]['vector']) == repr(other[0][0]['vector'])
    assert repr([x['latent'] for x in streams[0]]) != repr(
        [x['latent'] for x in other[0]]
    )


def test_every_kind_of_metric_is_logged_under_its_prefix(tmp_path, monkeypatch):
    monkeypatch.setattr(usage, 'SHORTEST', 0.0)

    class Counting(parts.SaveableReplay):
        def stats(self):
            return {'steps': sum(len(x) for x in self.streams.values())}

    entries = []
    run(tmp_path, replay=Counting, entries=entries, log_every=-1.0, report_every=-1.0)
    assert names(entries) >= {
        'train/weight',
        'train/updates',
        'report/error',
        'report/image',
        'episode/score',
        'episode/length',
        'episode/log/visits/max',
        'replay/steps',
        'fps/env',
        'fps/train',
        'usage/memory_gb',
        'usage/cpu_cores',
    }
    assert values(entries, 'train/updates')[-1] == 61
    assert values(entries, 'replay/steps')[-1] == 200
    assert all(x >= 0 for x in values(entries, 'fps/env'))


def test_reports_and_saves_that_take_long_are_put_off(tmp_path, monkeypatch):
    monkeypatch.setattr(meters, 'ALLOWED', 1e-9)

    class Counting(parts.Agent):
        saves = 0

        def save(self):
            self.saves += 1
            return super().save()

    entries, often = [], 1e-9
    agent = run(
        tmp_path, Counting(), entries=entries, report_every=often, save_every=often
    )
    assert len(agent.trained) > 10
    # The first report does not count; the last one is made in any case.
    assert len(values(entries, 'report/error')) == 3
    assert agent.saves <= 3  # at the start, once in between, and at the end
    assert {'loop/reports', 'loop/saves'} <= names(entries)


def test_train_metrics_are_averaged_between_logs(tmp_path):
    entries = []

    class Known(parts.Agent):
        def train(self, carry, batch):
            carry, outs, _ = super().train(carry, batch)
            return carry, outs, {'number': len(self.trained)}

    run(tmp_path, agent=Known(), entries=entries, steps=100)
    assert values(entries, 'train/number') == [np.mean(range(1, 29))]


def test_scores_have_one_line_per_episode(tmp_path):
    entries = []
    run(tmp_path, entries=entries)
    lines = read_records(tmp_path / 'scores.jsonl')
    assert [x['score'] for x in lines] == values(entries, 'episode/score')
    assert {x['env'] for x in lines} == {0, 1}
    assert not any(x['eval'] for x in lines)
    streams = load_part(tmp_path, 'replay')['content']['streams']
    ends = sum(int(x['is_last']) for stream in streams.values() for x in stream)
    assert len(lines) == ends


def test_no_report_or_log_happens_when_they_are_off(tmp_path):
    entries = []
    agent = run(tmp_path, entries=entries)
    assert agent.reports == 0
    # Only what the end of the run logs.
    assert {step for step, name, _ in entries if name.startswith('fps/')} == {200}


def test_a_finished_run_says_so_and_builds_nothing(tmp_path, capsys):
    run(tmp_path)
    capsys.readouterr()

    def build(*args):
        raise AssertionError('nothing should be built')

    args = parts.make_args(tmp_path)
    embodied.run.train(build, build, build, build, build, args)
    text = capsys.readouterr().out
    assert 'is finished: 200 steps, 61 updates' in text
    assert 'Raise run.steps' in text


def test_events_tell_how_a_run_went(tmp_path):
    run(tmp_path, steps=50)
    run(tmp_path, steps=100)
    events = read_records(tmp_path / 'events.jsonl')
    found = [(x['event'], x['step'], x.get('reason')) for x in events]
    assert found == [
        ('ended', 50, 'run.steps'),
        ('restored', 50, None),
        ('ended', 100, 'run.steps'),
    ]


def test_duration_ends_a_run_and_counts_earlier_sessions(tmp_path):
    run(tmp_path, steps=10**9, duration=0.5)
    progress = load_part(tmp_path, 'progress')
    assert progress['seconds'] >= 0.5
    assert 0 < progress['steps'] < 10**9
    run(tmp_path, steps=10**9, duration=0.5)  # says that it is finished
    assert load_part(tmp_path, 'progress') == progress
    # Long enough for more than loading the save on a busy machine.
    run(tmp_path, steps=10**9, duration=progress['seconds'] + 1)
    longer = load_part(tmp_path, 'progress')
    assert longer['seconds'] >= progress['seconds'] + 1
    assert longer['steps'] > progress['steps']


@pytest.mark.parametrize('envs', [1, 3])
def test_the_number_of_environments_may_change(tmp_path, envs):
    run(tmp_path, steps=100, envs=2)
    run(tmp_path, steps=160, envs=envs)
    progress = load_part(tmp_path, 'progress')
    assert progress['updates'] == (progress['steps'] - 15) * 4 // 12
    streams = load_part(tmp_path, 'replay')['content']['streams']
    assert len(streams) == max(2, envs)
    assert streams[0][50]['is_first']


def test_a_changed_ratio_holds_for_the_steps_to_come(tmp_path):
    entries = []
    run(tmp_path, steps=100, train_ratio=4)
    run(tmp_path, steps=160, train_ratio=12, entries=entries)
    assert load_part(tmp_path, 'progress')['updates'] == 28 + 60
    assert values(entries, 'replay/train_ratio')[-1] == 12


def test_another_agent_can_be_the_start(tmp_path):
    trained = run(tmp_path / 'old')
    changes = {
        'from_checkpoint': str(tmp_path / 'old'),
        'from_checkpoint_regex': 'weights',
        'train_ratio': 0.0,
    }
    fresh = run(tmp_path / 'new', **changes)
    assert fresh.loaded == 'weights'
    np.testing.assert_array_equal(fresh.weights, trained.weights)
    assert load_part_and_step(tmp_path / 'new', 'progress')[1] == 200
    # The run's own checkpoint goes first from then on.
    resumed = run(tmp_path / 'new', **{**changes, 'steps': 210})
    assert resumed.loaded == 'everything'


def test_a_wrong_source_is_refused_with_its_path(tmp_path):
    with pytest.raises(CheckpointError, match='no checkpoint in .*nothing'):
        run(tmp_path / 'new', from_checkpoint=str(tmp_path / 'nothing'))


class Failing(parts.Agent):
    def train(self, carry, batch):
        if len(self.trained) == 20:
            raise NonFiniteError("The loss 'image' became nan.")
        return super().train(carry, batch)


@pytest.mark.parametrize('every', [0.0, -1.0])
def test_an_error_in_training_reaches_the_user_and_keeps_the_last_save(tmp_path, every):
    before = threading.active_count()
    with pytest.raises(NonFiniteError, match="'image' became nan"):
        run(tmp_path, agent=Failing(), save_every=every)
    assert threading.active_count() == before
    assert load_part(tmp_path, 'progress')['updates'] <= 20
    if not every:
        assert load_part_and_step(tmp_path, 'progress')[1] == 0
    agent = run(tmp_path)
    assert load_part_and_step(tmp_path, 'progress')[1] == 200
    assert len(agent.trained) >= 61 - 20


def test_a_failed_save_is_added_to_the_error_that_ends_the_run(tmp_path):
    failing = threading.Event()

    class Unwritable:
        def __reduce__(self):
            failing.wait()
            raise OSError('No space left on device')

    class Agent(parts.Agent):
        def save(self):
            return Unwritable()

        def train(self, carry, batch):
            failing.set()
            raise NonFiniteError("The loss 'image' became nan.")

    with pytest.raises(NonFiniteError) as info:
        run(tmp_path, agent=Agent())
    assert 'No space left on device' in info.value.__notes__[0]


def test_what_was_opened_is_closed_when_building_fails(tmp_path):
    closed = []

    class Closing(parts.Env):
        def close(self):
            closed.append('env')

    class Logger(elements.Logger):
        def close(self):
            closed.append('logger')

    class Replay(parts.PlainReplay):
        def close(self):
            closed.append('replay')

    def make_stream(replay, mode):
        raise ValueError('no stream')

    with pytest.raises(ValueError, match='no stream'):
        embodied.run.train(
            parts.Agent,
            Replay,
            Closing,
            make_stream,
            lambda: Logger(elements.Counter(), [print]),
            parts.make_args(tmp_path),
        )
    assert closed == ['env', 'env', 'logger', 'replay']


SCRIPT = """
import sys
import embodied, run_parts as parts
class Agent(parts.Agent):
    def train(self, carry, batch):
        if len(self.trained) == 5:
            print('training', flush=True)
        return super().train(carry, batch)
    def save(self):
        print('saving', flush=True)
        if sys.argv[2] == 'stuck' and self.trained:
            import threading
            threading.Event().wait()
        return super().save()
if __name__ == '__main__':
    embodied.run.train(
        Agent, parts.SaveableReplay, parts.SaveableEnv, parts.Stream,
        parts.make_logger,
        parts.make_args(sys.argv[1], steps=10**9, debug=sys.argv[2] != 'processes'))
    print('returned', flush=True)
"""


def start(logdir, how):
    paths = [str(parts.FOLDER), os.environ.get('PYTHONPATH', '')]
    child = subprocess.Popen(
        [sys.executable, '-c', SCRIPT, str(logdir), how],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, 'PYTHONPATH': os.pathsep.join(paths)},
        start_new_session=True,
    )
    while child.stdout.readline().strip() != 'training':
        assert child.poll() is None
    return child


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize('how', ['inline', 'processes'])
def test_a_signal_ends_the_process_cleanly(tmp_path, number, how):
    with start(tmp_path, how) as child:
        if number == signal.SIGINT:  # Ctrl-C reaches the environments, too
            os.killpg(child.pid, number)
        else:
            child.send_signal(number)
        lines = child.stdout.read().split()
    assert child.returncode == 0
    assert lines == ['saving', 'returned']
    (event,) = read_records(tmp_path / 'events.jsonl')
    assert event['reason'] == number.name
    assert load_part_and_step(tmp_path, 'progress')[1] == event['step'] > 0
    assert load_part(tmp_path, 'progress')['updates'] == event['updates'] > 5


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_the_process_at_once(tmp_path, number):
    with start(tmp_path, 'stuck') as child:
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == 'saving\n'
        threading.Event().wait(REPEAT + 0.2)  # or it would be the same request
        child.send_signal(number)
        child.wait(30)
    assert child.returncode != 0
    assert load_part_and_step(tmp_path, 'progress')[1] == 0


def test_the_last_line_has_no_speed_of_what_has_ended(tmp_path):
    entries = []
    run(tmp_path, entries=entries, steps=100, train_ratio=4, log_every=-1)
    before, last = split_last(entries)
    assert {'fps/env', 'fps/train'} <= names(before)
    assert 'run/seconds' in names(last)
    assert not {'fps/env', 'fps/train'} & names(last)


def split_last(entries):
    """The entries before the last line and those of it, which begins with updates."""
    start = max(i for i, entry in enumerate(entries) if entry[1] == 'train/updates')
    return entries[:start], entries[start:]
