"""The runs of fault_parts.py on a Ray cluster, whose address is in RAY_ADDRESS.

    python ray_parts.py LOGDIR [--key value ...]        --role envs joins the run

Which node takes a role is said by resources of its name, where nodes have them.
"""

import os
import sys
from pathlib import Path

import elements
import fault_parts

from embodied.run.parallel.engines.ray.engine import RayEngine

KINDS = ('agent', 'replay', 'logger', 'env')
WANTED = {'cpus': 0.0, 'gpus': 0.0, 'gb': 0.0, 'resource': ''}
ARGS = {**fault_parts.ARGS, 'storage': 'shared', 'homes': ''}


def main():
    logdir, *flags = sys.argv[1:]
    args = elements.Flags(elements.Config(ARGS)).parse(flags)
    homes = args.homes.split(',')  # kinds of roles that have nodes of their own
    options = {
        'address': os.environ['RAY_ADDRESS'],
        'storage': args.storage,
        **{kind: {**WANTED, 'resource': kind * (kind in homes)} for kind in KINDS},
    }
    changes = {k: v for k, v in args.items() if k in fault_parts.ARGS}
    engine = RayEngine(options, [Path(logdir)])
    fault_parts.run(logdir, engine=engine, **changes)


if __name__ == '__main__':
    # As a module of its own, so that roles can import what they are given.
    import ray_parts

    ray_parts.main()
