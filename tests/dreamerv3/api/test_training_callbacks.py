"""`dreamerv3.train(on_log=...)`: real runs, followed and stopped by their caller."""

import os
import threading

import pytest

import dreamerv3
from embodied.core.checkpoint import load_part
from embodied.core.errors import ConfigError
from embodied.logging import read_records
from embodied.run.parallel.supervision.status import Status
from embodied.run.shared.outcome import Outcome

OPTIONS = {
    'random_agent': True,
    'logger.outputs': 'jsonl',
    'run.log_every': 0.2,
    'run.report_every': 0,
    'run.envs': 2,
    'run.eval_envs': 0,
}
SCRIPTS = ('train', 'parallel')


def train(logdir, on_log, script, steps=1e9, **options):
    return dreamerv3.train(
        task='toy_reach',
        logdir=logdir,
        steps=steps,
        script=script,
        configs=['debug'],
        options={**OPTIONS, **options},
        on_log=on_log,
    )


@pytest.mark.parametrize('script', SCRIPTS)
def test_the_caller_is_told_of_each_log_and_may_stop_the_run(tmp_path, script):
    seen, places = [], set()

    def on_log(step, metrics):
        seen.append((step, metrics))
        places.add((os.getpid(), threading.current_thread().name))
        if len(seen) >= 3 and any('episode/score' in x for _, x in seen):
            raise dreamerv3.StopRun('good enough')

    run = train(tmp_path, on_log, script)
    assert run.outcome == Outcome('stopped', 'on_log: good enough')
    thread = 'MainThread' if script == 'train' else 'view'
    assert places == {(os.getpid(), thread)}
    records = read_records(tmp_path / 'metrics.jsonl')
    for record, (step, metrics) in zip(records, seen, strict=False):
        assert metrics == {k: v for k, v in record.items() if k in metrics}
        assert record.keys() - metrics.keys() == {'step', 'time'}
        assert record['step'] == step
    if script == 'parallel':
        status = Status.read(tmp_path).record
        assert (status['state'], status['reason']) == run.outcome
        assert status['error'] == ''
    # It was saved, and goes on from there.
    saved, again = run.steps, []
    assert saved >= seen[-1][0]
    run = train(tmp_path, lambda step, _: again.append(step), script, saved + 100)
    assert run.outcome == Outcome('finished', 'run.steps')
    assert again[0] >= saved and again[-1] == run.steps


@pytest.mark.parametrize('script', SCRIPTS)
def test_an_error_of_the_callback_reaches_the_caller_after_a_save(tmp_path, script):
    seen = []

    def on_log(step, metrics):
        if step:
            seen.append(step)
            raise KeyError('no such metric')

    with pytest.raises(KeyError, match='no such metric'):
        train(tmp_path, on_log, script)
    assert len(seen) == 1
    run = dreamerv3.Run(tmp_path)
    assert run.outcome == Outcome('failed', "KeyError: 'no such metric'")
    parts = {'train': ('.', 'progress'), 'parallel': ('agent', 'learner')}
    folder, part = parts[script]
    progress = load_part(tmp_path / 'ckpt' / folder, part)
    assert progress['steps'] >= seen[0] and not progress['complete']


def test_runs_of_threads_are_stopped_each_by_its_own_callback(tmp_path):
    ends = {}

    def work(name, after):
        count = []

        def on_log(step, metrics):
            count.append(step)
            return len(count) == after

        options = {'run.env_processes': False}
        run = train(tmp_path / name, on_log, 'train', **options)
        ends[name] = run.outcome, len(count)

    threads = [threading.Thread(target=work, args=(str(n), n)) for n in (1, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stopped = Outcome('stopped', 'on_log')
    assert ends == {'1': (stopped, 1), '3': (stopped, 3)}


def test_a_run_that_is_finished_calls_nothing(tmp_path):
    train(tmp_path, None, 'train', steps=40)
    train(tmp_path, lambda step, metrics: 1 / 0, 'train', steps=40)


def test_the_outcome_of_a_run_that_goes_on_is_not_known(tmp_path):
    assert dreamerv3.Run(tmp_path).outcome is None
    found = []

    def on_log(step, metrics):
        found.append(dreamerv3.Run(tmp_path).outcome)
        return True

    train(tmp_path, on_log, 'train')
    assert found == [None]


@pytest.mark.parametrize(
    ('options', 'words'),
    [
        ({'script': 'eval_only'}, 'not eval_only'),
        ({'script': 'parallel', 'engine': 'slurm'}, 'SLURM'),
    ],
)
def test_callbacks_that_could_not_be_called_are_refused(tmp_path, options, words):
    with pytest.raises(ConfigError, match=words):
        train(tmp_path, print, **{'script': 'train', **options})
    assert not list(tmp_path.iterdir())


def test_what_is_no_function_is_refused(tmp_path):
    with pytest.raises(ConfigError, match='is no function'):
        train(tmp_path, 'print', 'train')
