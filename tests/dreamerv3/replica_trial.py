"""One of several processes that train an agent together.

    python replica_trial.py REPLICA REPLICAS PORT START OUT

START is a pickled save, which replica 0 alone loads. Each has its part of the rows.
After some updates the last one wants no more, and the others go on until they know.
OUT gets a pickle with what came out.
"""

import pickle
import sys
from pathlib import Path

from mesh_trial import LENGTH, ROWS, UPDATES, make, train

import embodied.jax


def main(replica, replicas, port, start, out):
    replica, replicas = int(replica), int(replicas)
    embodied.jax.connect(replica, replicas, f'localhost:{port}')
    agent = make()
    if replica == 0:
        agent.load(pickle.loads(Path(start).read_bytes()))
    (leader,) = agent.follow([100 + replica])
    size = ROWS // replicas
    agent.prepare(size, LENGTH, 0)
    rows = slice(replica * size, (replica + 1) * size)
    result = train(agent, UPDATES, rows=rows)
    if replica == replicas - 1:
        agent.agreement.stop()
    carry, more = agent.init_train(size), 0
    while not agent.agreement.over:
        batch = agent.idle_batch(size, LENGTH)
        carry, *_ = agent.train(carry, batch)
        more += 1
    agent.part()
    result |= {'state': agent.state, 'updates': agent.updates}
    result |= {'leader': leader, 'more': more, 'compiled': agent.compiled}
    Path(out).write_bytes(pickle.dumps(result))


if __name__ == '__main__':
    main(*sys.argv[1:])
