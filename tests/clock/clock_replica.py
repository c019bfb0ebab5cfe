"""A replica that asks its clocks once per line of stdin and prints the answers.

    python clock_replica.py REPLICA REPLICAS PORT SKIPS [EVERY ...]

SKIPS: a digit per call, 1 where this replica is not ready. Each EVERY is one clock.
"""

import json
import sys

import embodied
from embodied.core.errors import RoleError


def main(replica, replicas, port, skips, *every):
    replica, addr = int(replica), f'localhost:{port}'
    embodied.clock.setup(replica == 0, replica, int(replicas), port, addr)
    clocks = [embodied.GlobalClock(float(x), first=True) for x in every]
    print(json.dumps('ready'), flush=True)
    for line, skip in zip(sys.stdin, skips, strict=False):
        assert line
        try:
            answers = [clock(skip=skip == '1') for clock in clocks]
        except RoleError as error:
            answers = str(error)
        print(json.dumps(answers), flush=True)


if __name__ == '__main__':
    main(*sys.argv[1:])
