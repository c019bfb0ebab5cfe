"""The actor answers workers, feeds replay, tells the logger, and knows when to stop."""

import contextlib
import threading

import numpy as np
import pytest
from acting_parts import CountingAgent, Sinks
from data_parts import DEADLINE, SHORT, Worker, is_waiting, make_context

from embodied.run.parallel import outbox
from embodied.run.parallel.actor import outgoing as inserts
from embodied.run.parallel.actor.actor import Actor
from embodied.run.parallel.run_state import STEPS, RunState

WORKER = np.arange(16, dtype=np.uint8)


class Stage:
    """An actor without sockets, and environments that are stepped by hand."""

    def __init__(self, stack, folder, agent=None, **changes):
        context = make_context(folder, **{'eval_envs': 2, **changes})
        self.sinks = stack.enter_context(Sinks())
        self.agent = agent or CountingAgent()
        self.run_state = RunState()
        boxes = []
        for method in ('tran', 'add'):
            boxes.append(outbox.Outbox(self.sinks.client('logger'), method, 8))
            stack.callback(boxes[-1].close)
        replay = self.sinks.client('replay')
        stack.callback(replay.close)
        self.actor = Actor(self.agent, replay, *boxes, self.run_state, context)
        self.serials = {}

    def act(self, *rows, mode='train', worker_id=WORKER, **options):
        """Rows are (envid, step of the episode); an episode has 4 of them."""
        origin = {
            'envid': np.array([envid for envid, _ in rows], np.int32),
            'worker_id': np.tile(worker_id, (len(rows), 1)),
            'serial': np.array([self._serial(envid) for envid, _ in rows]),
        }
        steps = np.array([step for _, step in rows], np.int32)
        obs = {
            'step': steps,
            'image': np.zeros((len(rows), 4, 4, 3), np.uint8),
            'reward': np.ones(len(rows), np.float32),
            'is_first': steps == 0,
            'is_last': steps == 3,
            'is_terminal': steps == 3,
            'log/height': steps.astype(np.float32),
            'log/view': np.zeros((len(rows), 4, 4, 3), np.uint8),
        }
        return self.actor.act(mode, origin, obs, **options)

    def play(self, *rows, **options):
        answer, record = self.act(*rows, **options)
        self.actor.record(record)
        return answer

    def _serial(self, envid):
        self.serials[envid] = self.serials.get(envid, -1) + 1
        return self.serials[envid]

    def finish(self):
        """Waits until the sinks know everything."""
        self.actor.close()


@pytest.fixture
def stage(tmp_path):
    with contextlib.ExitStack() as stack:
        yield lambda **options: Stage(stack, tmp_path, **options)


def test_transitions_are_stored_with_actions_and_latents_but_no_logs(stage):
    stage = stage()
    for step in range(3):
        answer = stage.play((1, step), (3, step))
        assert answer['acts']['action'].tolist() == [step, step]
        assert not answer['reset'].any()
        assert not answer['stop'].any()
    stage.sinks.wait_for(lambda: stage.sinks.steps == 6)
    rows = stage.sinks.rows['add_batch']
    assert rows[0][2].keys() == {
        *('step', 'image', 'reward', 'is_first', 'is_last', 'is_terminal'),
        *('action', 'latent'),
    }
    streams = {stream for stream, _, _ in rows}
    assert len(streams) == 2
    for stream in streams:
        own = [(serial, row) for name, serial, row in rows if name == stream]
        assert [serial for serial, _ in own] == [0, 1, 2]
        assert [row['action'] for _, row in own] == [0, 1, 2]
        assert [row['latent'] for _, row in own] == [0.0, 10.0, 20.0]


def test_a_call_waits_for_others_as_long_as_the_last_one_took_within_bounds(stage):
    class Slow(CountingAgent):
        seconds = 0.0

        def policy(self, *args, **kwargs):
            threading.Event().wait(self.seconds)
            return super().policy(*args, **kwargs)

    agent = Slow()
    stage = stage(agent=agent, max_wait=0.02)
    assert stage.actor.batch_wait() == 0.02
    for step, (seconds, shortest, longest) in enumerate(
        [(0.0, 0.02, 0.05), (0.03, 0.03, 0.05), (0.1, 0.05, 0.05)]
    ):
        agent.seconds = seconds
        stage.play((0, step))
        assert shortest <= stage.actor.batch_wait() <= longest


def test_the_last_step_has_a_zero_action_and_asks_for_a_reset(stage):
    stage = stage()
    for step in range(3):
        stage.play((0, step), (1, step))
    answer = stage.play((0, 3), (1, 3))
    assert answer['reset'].all()
    assert answer['acts']['action'].tolist() == [0, 0]
    answer = stage.play((0, 0), (1, 0))
    assert not answer['reset'].any()
    assert answer['acts']['action'].tolist() == [4, 4]
    stage.sinks.wait_for(lambda: stage.sinks.steps == 10)
    last = [row for _, _, row in stage.sinks.rows['add_batch'] if row['is_last']]
    assert [row['action'] for row in last] == [0, 0]


def test_the_logger_follows_episodes_without_images(stage):
    stage = stage(film_every=0.0)
    for step in range(4):
        stage.play((2, step))
        stage.play((4, step), mode='eval')
    stage.finish()
    rows = stage.sinks.transitions
    keys = {'reward', 'is_first', 'is_last', 'serial', 'log/height', 'log/count'}
    assert all(row.keys() == keys for _, _, row in rows)
    for envid, is_eval in ((2, False), (4, True)):
        own = [row for number, flag, row in rows if (number, flag) == (envid, is_eval)]
        assert [row['log/height'] for row in own] == [0, 1, 2, 3]
    assert len(rows) == 8


def test_films_come_whole_under_the_name_of_their_mode(stage):
    for mode, envid, prefix in (('train', 0, 'episode'), ('eval', 5, 'eval')):
        part = stage()
        for step in range(4):
            part.play((envid, step), mode=mode)
        part.finish()
        films = [(p, m) for p, m, _ in part.sinks.metrics if 'film/image' in m]
        assert [name for name, _ in films] == [prefix]
        assert films[0][1].keys() == {'film/image', 'film/log/view'}
        assert films[0][1]['film/image'].shape == (4, 4, 4, 3)


def test_evaluation_is_stored_apart_and_played_in_its_own_mode(stage):
    stage = stage()
    stage.play((0, 0), mode='train')
    stage.play((4, 0), (5, 0), mode='eval')
    stage.sinks.wait_for(lambda: len(stage.sinks.rows['add_batch_eval']) == 2)
    stage.sinks.wait_for(lambda: stage.sinks.steps == 1)
    assert [mode for _, mode in stage.agent.calls] == ['train', 'eval']


def test_an_unknown_environment_in_mid_episode_leaves_no_trace(stage):
    stage = stage()
    answer = stage.play((0, 2), (1, 0))
    assert answer['reset'].tolist() == [True, False]
    assert answer['acts']['action'].tolist() == [0, 0]
    answer = stage.play((0, 0), (1, 1))
    assert answer['reset'].tolist() == [False, False]
    assert answer['acts']['action'].tolist() == [0, 1]
    stage.finish()
    stage.sinks.wait_for(lambda: stage.sinks.steps == 3)
    stored = [(serial, row['step']) for _, serial, row in stage.sinks.rows['add_batch']]
    assert sorted(stored) == [(0, 0), (1, 0), (1, 1)]
    assert {envid for envid, _, _ in stage.sinks.transitions} == {0, 1}
    assert len(stage.sinks.transitions) == 3


def test_a_batch_of_strangers_stores_nothing_at_all(stage):
    stage = stage()
    assert stage.play((0, 2), (1, 2))['reset'].all()
    stage.play((0, 0))
    stage.sinks.wait_for(lambda: stage.sinks.steps == 1)


def test_a_new_worker_starts_a_fresh_carry_and_a_new_stream(stage):
    stage = stage()
    for step in (0, 1, 2):
        stage.play((0, step), (1, step))
    other = WORKER + 1
    answer = stage.play((0, 0), worker_id=other)
    assert answer['acts']['action'].tolist() == [0]
    answer = stage.play((0, 3), (1, 3))
    assert answer['stop'].tolist() == [True, False]
    assert stage.play((1, 0))['acts']['action'].tolist() == [4]
    stage.sinks.wait_for(lambda: stage.sinks.steps == 9)
    assert len({stream for stream, _, _ in stage.sinks.rows['add_batch']}) == 3


def test_a_first_step_that_another_actor_may_have_stored_is_played_again(stage):
    stage = stage()
    assert stage.play((0, 0), repeated=True)['reset'].all()
    assert not stage.play((0, 0))['reset'].any()


def test_acting_waits_for_replay(stage):
    stage = stage()
    stage.sinks.open['add_batch'].clear()
    passed = threading.Semaphore(0)

    def play():
        for step in range(20):
            stage.play((0, step % 4))
            passed.release()

    player = Worker(play)
    for _ in range(inserts.UNANSWERED):
        assert passed.acquire(timeout=DEADLINE)
    assert not passed.acquire(timeout=SHORT)
    stage.sinks.open['add_batch'].set()
    player.join()
    stage.sinks.wait_for(lambda: stage.sinks.steps == 20)
    serials = [serial for _, serial, _ in stage.sinks.rows['add_batch']]
    assert serials == list(range(20))


def test_evaluation_goes_on_while_training_waits(stage):
    stage = stage()
    stage.sinks.open['add_batch'].clear()
    player = Worker(lambda: [stage.play((0, step % 4)) for step in range(20)])
    for step in range(20):
        stage.play((4, step % 4), mode='eval')
    stage.sinks.wait_for(lambda: len(stage.sinks.rows['add_batch_eval']) == 20)
    assert stage.sinks.steps == 0
    stage.sinks.open['add_batch'].set()
    player.join()


def test_a_silent_logger_does_not_hold_up_acting(stage):
    stage = stage(log_every=-1.0)
    for name in ('tran', 'add'):
        stage.sinks.open[name].clear()
    for step in range(120):
        stage.play((0, step % 4))
    stage.sinks.wait_for(lambda: stage.sinks.steps == 120)
    for name in ('tran', 'add'):
        stage.sinks.open[name].set()
    stage.finish()
    stage.play((0, 0))
    stage.finish()
    metrics = [m for prefix, m, _ in stage.sinks.metrics if prefix == 'actor']
    assert metrics[-1]['dropped'] > 0
    assert metrics[-1]['batch_rows'] == 1


def test_the_actor_ends_when_a_late_logger_knows_of_all_episodes(stage):
    stage = stage()
    stage.sinks.open['tran'].clear()
    for step in range(8):
        stage.play((0, step % 4))
    closing = Worker(stage.actor.close)
    assert is_waiting(closing)
    stage.sinks.open['tran'].set()
    closing.join()
    assert len(stage.sinks.transitions) == 8


def test_messages_carry_the_steps_that_replay_has_committed(stage):
    stage = stage(log_every=-1.0)
    for step in range(12):
        stage.play((0, step % 4), (1, step % 4))
        stage.sinks.wait_for(lambda step=step: stage.sinks.steps == 2 * step + 2)
    stage.finish()
    steps = [steps for prefix, _, steps in stage.sinks.metrics if prefix == 'actor']
    assert steps == sorted(steps)
    assert 0 < steps[-1] <= 24
    assert stage.run_state.steps == steps[-1]


def test_what_workers_use_is_passed_on_with_the_next_steps(stage):
    stage = stage()
    used = {'steps': 4, 'step_seconds': 0.2, 'memory_gb': 1.0, 'cpu_cores': 0.5}
    used |= {'cores': 8, 'idle_cores': 2.0, 'host': 'here'}
    for worker in (1, 2, 1):
        stage.actor.usage(np.full(16, worker, np.uint8), False, used)
    stage.play((0, 0))
    stage.finish()
    (found,) = [m for prefix, m, _ in stage.sinks.metrics if prefix == 'usage/envs']
    assert (found['workers'], found['cpu_cores'], found['idle_cores']) == (2, 1, 2)
    assert found['step_ms'] == pytest.approx(50)


def test_replay_ends_the_run_and_every_worker_hears_it(stage):
    stage = stage()
    stage.sinks.stop_at = 4
    step = 0
    while not stage.run_state.stopped:
        stage.play((0, step % 4))
        step += 1
    assert stage.run_state.reason == STEPS
    calls = len(stage.agent.calls)
    answer, record = stage.act((0, 1), (1, 0))
    assert answer['stop'].all()
    assert record is None
    assert len(stage.agent.calls) == calls


def test_stopping_frees_those_who_wait_for_replay(stage):
    stage = stage()
    stage.sinks.open['add_batch'].clear()
    player = Worker(lambda: [stage.play((0, step % 4)) for step in range(9)])
    stage.run_state.stop('SIGTERM')
    stage.actor.stop()
    player.join()


def test_evaluations_are_due_once_in_each_period(stage):
    stage = stage(eval_every=50)
    waiting = Worker(stage.actor.evaluate, WORKER, 4, -1)
    assert is_waiting(waiting)
    step = 0

    def play_until(steps):
        nonlocal step
        while stage.run_state.steps < steps:
            stage.play((0, step % 4))
            step += 1

    play_until(1)
    assert waiting.join() == {'period': 0, 'stop': False}
    waiting = Worker(stage.actor.evaluate, WORKER, 4, 0)
    play_until(20)
    assert is_waiting(waiting)
    play_until(160)
    assert waiting.join()['period'] >= 1
    assert stage.actor.evaluate(WORKER, 4, 2) == {'period': 3, 'stop': False}
    waiting = Worker(stage.actor.evaluate, WORKER, 4, 3)
    stage.actor.stop()
    assert waiting.join()['stop']


def test_a_worker_that_comes_back_ends_the_wait_of_the_one_that_died(stage):
    evaluate = stage(eval_every=50).actor.evaluate
    dead = Worker(evaluate, WORKER, 4, -1)
    assert is_waiting(dead)
    back = Worker(evaluate, WORKER + 1, 4, -1)
    assert dead.join()['stop'] and is_waiting(back)


# With other threads.


def test_no_worker_waits_behind_a_policy_call_that_compiles(stage):
    class Compiling(CountingAgent):
        begun, go = threading.Event(), threading.Event()

        def policy(self, *args, mode='train'):
            if mode == 'train':
                self.begun.set()
                assert self.go.wait(DEADLINE)
            return super().policy(*args, mode=mode)

    agent = Compiling()
    stage = stage(agent=agent, envs=1, eval_envs=0)
    others = [np.full(16, i, np.uint8) for i in range(40, 43)]
    agent.go.set()
    stage.play((0, 0))
    for envid, worker in enumerate(others, 1):
        stage.play((envid, 0), worker_id=worker)
    wide = stage.actor._policy.slots
    agent.begun.clear()
    agent.go.clear()
    compiling = Worker(stage.act, (0, 1))
    assert agent.begun.wait(DEADLINE)
    for worker in others:  # each in turn: there is one thread for all of them
        Worker(stage.actor.leave, worker).join()
    evaluation = Worker(stage.actor.evaluate, WORKER, 7, -2)
    assert not evaluation.join()['stop']
    assert len(stage.actor._registry) == 1
    assert compiling.is_alive()
    agent.go.set()
    compiling.join()
    # The call itself gives back the room that was left meanwhile.
    assert stage.actor._policy.slots < wide


def test_room_is_not_taken_from_those_who_came_after_others_left(stage):
    stage = stage(envs=1, eval_envs=0)
    numbers = [np.full(16, i, np.uint8) for i in range(9)]
    for envid, worker in enumerate(numbers):
        stage.play((envid, 0), worker_id=worker)
    policy = stage.actor._policy
    with policy._lock:  # as if a call was running
        for worker in numbers[3:]:
            stage.actor.leave(worker)
        late = Worker(stage.act, (20, 0))  # takes slot 4 and waits
        assert is_waiting(late)
    late.join()
    assert policy.slots == 4
    answer, _ = stage.act((20, 1))
    assert answer['acts']['action'].tolist() == [1]
