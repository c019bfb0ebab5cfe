"""The environment loop of the reference, with nothing but the stock portal library.

    python reference_env.py PORT ENVID IS_EVAL

It plays until the run ends, and prints how many episodes that were.
"""

import sys

import foreign
import numpy as np
import portal


def main(port, envid, is_eval):
    env = foreign.Env(envid)
    actor = portal.Client(f'localhost:{port}', f'env{envid}', autoconn=False)
    actor.connect()
    done, episodes = True, 0
    while True:
        if done:
            act = {key: space.sample() for key, space in env.act_space.items()}
            act['reset'] = True
        obs = env.step(act)
        obs = {key: np.asarray(value, order='C') for key, value in obs.items()}
        obs['is_eval'] = is_eval
        done = bool(obs['is_last'])
        episodes += done
        try:
            act = actor.act({'envid': envid, **obs}).result()
        except portal.Disconnected:
            break
    actor.close()
    assert not {'embodied', 'dreamerv3'} & sys.modules.keys()
    print(f'episodes {episodes}', flush=True)


if __name__ == '__main__':
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3] == 'True')
