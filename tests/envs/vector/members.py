"""Plays vector environments for tests, and the same steps in single ones."""

import gymnasium
import numpy as np
from gymnasium import spaces

from embodied.core.random_agent import RandomAgent
from embodied.envs.vector.rows import split_final, to_host


def play(env, steps, resets=None, seed=1):
    """One stream per member: a list of pairs of an action and the row that followed.

    Last rows that come beside others get a place of their own. resets: members that
    begin in mid-episode, by step.
    """
    agent = RandomAgent(env.obs_space, env.act_space, seed)
    streams = [[] for _ in range(env.num)]
    reset = np.ones(env.num, bool)
    for step in range(steps):
        _, acts, _ = agent.policy((), {'is_first': np.zeros(env.num)})
        acts = {k: v.astype(env.act_space[k].dtype) for k, v in acts.items()}
        reset[list((resets or {}).get(step, ()))] = True
        rows, final = split_final(to_host(env.step({**acts, 'reset': reset})))
        for member, stream in enumerate(streams):
            action = {k: v[member] for k, v in acts.items()}
            if final is not None and member in final.members:
                place = final.members.tolist().index(member)
                last = {k: v[place] for k, v in final.rows.items()}
                stream.append(({**action, 'reset': np.bool_(False)}, last))
                action['reset'] = np.bool_(True)
            else:
                action['reset'] = np.bool_(reset[member])
            stream.append((action, {k: np.array(v[member]) for k, v in rows.items()}))
        reset = np.array(rows['is_last'])
    return streams


def assert_same(single, stream):
    """The single environment gives the same rows for the same actions."""
    for number, (action, row) in enumerate(stream):
        expected = single.step(action)
        assert expected.keys() == row.keys()
        for key, value in expected.items():
            where = f'{key!r} of row {number}'
            assert np.asarray(value).dtype == row[key].dtype, where
            np.testing.assert_array_equal(row[key], value, err_msg=where)
    single.close()


class Counting(gymnasium.Env):
    """Episodes of 1, 2, 3, 1, ... steps, whose ends are terminal every second time.

    Observations and actions are nested; every number depends on the seed. The info
    `half` is in every second step, from the first on, `fresh` in resets alone.
    """

    observation_space = spaces.Dict(
        count=spaces.Discrete(9, start=-1),
        pair=spaces.MultiDiscrete([9, 4]),
        image=spaces.Box(0, 255, (4, 4, 3), np.uint8),
        parts=spaces.Tuple([spaces.Box(-9, 9, (2,), np.float64)]),
    )
    action_space = spaces.Dict(
        move=spaces.Discrete(3, start=-1),
        aims=spaces.MultiDiscrete([2, 5]),
        force=spaces.Box(-2, 2, (2,), np.float32),
    )

    def __init__(self):
        self.episode = 0

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.episode += 1
        self.count = 0
        self.last = {'move': 0, 'force': np.zeros(2), 'aims': (0, 0)}
        return self._observe(), {'fresh': 1.0}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.count += 1
        self.last = action
        ends = self.count == 1 + (self.episode - 1) % 3
        terminated = ends and self.episode % 2 == 0
        reward = self.np_random.normal() + self.count
        info = {'half': self.count / 2} if self.count % 2 else {}
        return self._observe(), reward, terminated, ends and not terminated, info

    def _observe(self):
        image = self.np_random.integers(0, 256, (4, 4, 3)).astype(np.uint8)
        pair = np.array([self.count, int(self.last['aims'][1]) % 4])
        force = np.asarray(self.last['force'], np.float64)
        return {
            'count': np.int64(self.count + int(self.last['move'])),
            'pair': pair,
            'image': image,
            'parts': (force,),
        }
