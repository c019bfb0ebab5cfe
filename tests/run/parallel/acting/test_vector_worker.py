"""Members of a vector environment are played as single environments are."""

import functools

import numpy as np
import pytest
from acting_parts import Env
from data_parts import make_args
from test_env_worker import FakeActor, plan
from together import Together

from embodied.core.errors import ConfigError, MembersError, SpaceError
from embodied.run.parallel import parallel_env
from embodied.run.parallel.env.worker import run_worker
from embodied.run.parallel.settings import FIRST_EVAL_ENV

STYLES = pytest.mark.parametrize('final', [False, True], ids=['next', 'same'])


def make(index, count=3, final=False, made=None, kind=Env):
    """Members whose episodes have 1, 2, ... steps."""
    makes = [functools.partial(kind, index + i, i + 1) for i in range(count)]
    env = Together(makes, final)
    if made is not None:
        made.append(env)
    return env


def columns(rows):
    return {key: [int(row[4][key]) for row in rows] for key in ('step', 'done')}


@STYLES
def test_every_member_sends_what_a_single_environment_sends(tmp_path, final):
    args = make_args(tmp_path, envs_per_worker=3, envs=3)
    with FakeActor(args, rows=120) as actor:
        run_worker(functools.partial(make, final=final), plan(0, 1, 2), args)
        actor.wait_for(lambda: actor.left)
    for member in range(3):
        rows = actor.of(member)
        assert {int(row[4]['index']) for row in rows} == {member}
        assert [row[2] for row in rows] == list(range(len(rows)))
        seen, length = columns(rows), member + 2
        assert seen['step'] == [i % length for i in range(len(rows))]
        # The action that answered the row before, except at the beginning of episodes.
        follows = [1000 * (member + 1) + i for i in range(-1, len(rows) - 1)]
        pairs = zip(follows, seen['step'], seen['done'], strict=True)
        for expected, step, done in pairs:
            assert step == 0 or done == expected


def test_all_members_are_in_one_message_and_last_rows_go_ahead(tmp_path):
    args = make_args(tmp_path, envs_per_worker=3, envs=3)
    with FakeActor(args, rows=20) as actor:
        run_worker(functools.partial(make, final=True), plan(0, 1, 2), args)
    every = [0, 1, 2]
    assert actor.messages[:5] == [every, [0], every, [0, 1], every]


def test_members_that_the_actor_does_not_know_begin_anew(tmp_path):
    args = make_args(tmp_path, envs_per_worker=3, envs=3)
    unknown = lambda envid, serial: (envid, serial) == (2, 1)
    with FakeActor(args, rows=18, unknown=unknown) as actor:
        run_worker(make, plan(0, 1, 2), args)
    assert columns(actor.of(2))['step'] == [0, 1, 0, 1, 2, 3]
    assert columns(actor.of(1))['step'] == [0, 1, 2, 0, 1, 2]


def test_messages_hold_no_more_rows_than_the_actor_takes(tmp_path):
    args = make_args(tmp_path, envs_per_worker=5, envs=5, actor_batch=2)
    with FakeActor(args, rows=50, batch=2) as actor:
        run_worker(functools.partial(make, count=5), plan(*range(5)), args)
    assert sorted(actor.messages[:3]) == [[0, 1], [2, 3], [4]]
    assert columns(actor.of(4))['step'][:6] == [0, 1, 2, 3, 4, 5]


def test_thousands_of_members_fit_into_one_message(tmp_path):
    count = 2048
    args = make_args(tmp_path, envs_per_worker=count, envs=count)
    with FakeActor(args, rows=2 * count) as actor:
        run_worker(functools.partial(make, count=count), plan(*range(count)), args)
    assert {len(message) for message in actor.messages} == {count}


@STYLES
def test_evaluation_plays_its_episodes_in_the_members_that_are_planned(tmp_path, final):
    changes = {'envs': 3, 'eval_envs': 2, 'eval_eps': 2, 'envs_per_worker': 3}
    args = make_args(tmp_path, **changes)
    with FakeActor(args, periods=2) as actor:
        parallel_env(
            functools.partial(make, final=final), FIRST_EVAL_ENV, args, is_eval=True
        )
        actor.wait_for(lambda: actor.left)
    assert {row[1] for row in actor.rows} == {FIRST_EVAL_ENV, FIRST_EVAL_ENV + 1}
    for member in (0, 1):
        episode = list(range(member + 2))
        rows = actor.of(FIRST_EVAL_ENV + member)
        assert columns(rows)['step'] == 2 * 2 * episode


# How many


def test_a_job_of_its_own_adopts_the_members(tmp_path):
    args = make_args(tmp_path, envs=6)
    with FakeActor(args, rows=30) as actor:
        parallel_env(make, 3, args)
    assert {row[1] for row in actor.rows} == {3, 4, 5}
    with pytest.raises(ConfigError, match='3 members.*from number 4 on.*2 env.*=6'):
        parallel_env(make, 4, args)


def test_another_number_than_planned_is_refused_with_both(tmp_path):
    args = make_args(tmp_path, envs=4, envs_per_worker=2)
    with pytest.raises(
        MembersError, match='3 members, and 2.*run.envs=4, run.envs_per_worker=2'
    ) as error:
        run_worker(make, plan(0, 1), args)
    assert error.value.members == 3


def test_only_one_vector_environment_is_made_before_the_number_is_known(tmp_path):
    args, made = make_args(tmp_path, envs=4), []
    with pytest.raises(MembersError):
        run_worker(functools.partial(make, made=made), plan(0, 1, 2, 3), args)
    assert len(made) == 1
    assert made[0].closed


def test_a_single_environment_among_vector_environments_is_refused(tmp_path):
    args = make_args(tmp_path, envs=4, envs_per_worker=2, vector_envs=True)
    with pytest.raises(ConfigError, match='env2 needs a vector environment of 2 mem'):
        run_worker(Env, plan(2, 3), args)


# Bad input


class WrongShape(Env):
    def step(self, action):
        obs = super().step(action)
        if self.step_index == 1:
            obs['image'] = np.zeros((4, 4, 1), np.uint8)
        return obs


def test_rows_of_a_wrong_shape_name_key_expected_and_got(tmp_path):
    args = make_args(tmp_path, envs_per_worker=3, envs=3)
    wrong = functools.partial(make, kind=WrongShape)
    words = r"'image'.*3 rows of uint8.*\(4, 4, 3\).*got uint8.*\(3, 4, 4, 1\)"
    with FakeActor(args), pytest.raises(SpaceError, match=words):
        run_worker(wrong, plan(0, 1, 2), args)
