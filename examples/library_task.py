"""Trains on a task of a library of vector environments, by default of gymnax.

pip install 'dreamer-parallel[gymnax]'
python examples/library_task.py [TASK] [STEPS] [PRESET]

Other tasks are craftax:classic-symbolic, navix:Empty-5x5-v0, brax:ant and
playground:WalkerWalk, with the extras of these names, and envpool:CartPole-v1.
"""

import sys
import tempfile

import dreamerv3


def main(task='gymnax:CartPole-v1', steps=2000, preset='tiny'):
    with tempfile.TemporaryDirectory() as logdir:
        # The run makes as many members as it has environments.
        options = {'run.envs': 8}
        run = dreamerv3.train(
            task=task,
            logdir=logdir,
            steps=float(steps),
            configs=[preset],
            options=options,
        )
        print(f'{len(run.scores)} episodes, the last ones scored {run.scores[-5:]}')


if __name__ == '__main__':
    main(*sys.argv[1:])
