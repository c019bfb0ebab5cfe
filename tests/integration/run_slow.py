"""Environments and a learner of known speed: `python run_slow.py LOGDIR ENVS`.

A step takes 0.1 s, as of a simulator that computes elsewhere, and an update 0.05 s.
"""

import functools
import sys
import time

import foreign

import embodied

STEP, UPDATE = 0.1, 0.05  # seconds


class Env(foreign.Env):
    def step(self, action):
        time.sleep(STEP)
        return super().step(action)


class Agent(foreign.Agent):
    def train(self, carry, batch):
        time.sleep(UPDATE)
        return super().train(carry, batch)


def main():
    logdir, envs = sys.argv[1:]
    args = foreign.make_args(
        logdir, envs=int(envs), eval_envs=0, steps=1e9, log_every=1.0
    )
    replay = foreign.Replay, foreign.Replay
    make_logger = functools.partial(foreign.make_logger, logdir)
    parts = Env, Env, foreign.make_stream, make_logger
    embodied.run.parallel.combined(Agent, *replay, *parts, args)


if __name__ == '__main__':
    main()
