"""Trains the same agent on several numbers of devices of one process.

    python mesh_trial.py OUT LAYOUT... [--option=value ...]

A layout is data x fsdp, as in 2x4. OUT gets a pickle with what came out of each.
"""

import pickle
import sys
from pathlib import Path

import agents
import numpy as np

import dreamerv3

__all__ = ['begin', 'make', 'train']

ROWS, LENGTH, UPDATES = 8, 3, 4
SPACES = agents.spaces(('vector',), ('discrete',))
FLAGS = ('--jax.compute_dtype=float32', '--agent.opt.lr=1e-4', '--batch_size=8')
BINS = 41
PEAK = 2.0  # by how much logits fall per bin


def make(*flags):
    return dreamerv3.Agent(*SPACES, agents.make_config(*FLAGS, *flags))


def begin(agent):
    """A save in which rewards and values have narrow distributions.

    Those of a fresh agent have their mass in huge bins of both signs, whose sum depends
    on the order of additions.
    """
    data = agent.save()
    narrow = -PEAK * np.abs(np.arange(BINS) - BINS // 2).astype(np.float32)
    state = dict(data['state'])
    for name, value in state.items():
        if value.shape == (BINS,) and not name.startswith('opt'):
            state[name] = narrow
    return {**data, 'state': state}


def train(agent, updates, first=0, rows=slice(0, ROWS)):
    """Metrics of each update but the last, and the latents of the one before it."""
    metrics, carry = [], agent.init_train(rows.stop - rows.start)
    for seed in range(first, first + updates):
        batch = agents.make_batch(agent.model, *SPACES, ROWS, LENGTH, seed)
        # As our replay serves it: latents of the context alone.
        context = lambda k, v: v[:, : agent.model.context] if k[:4] == 'dyn/' else v
        batch = {k: context(k, v[rows]) for k, v in batch.items()}
        carry, outs, mets = agent.train(carry, batch)
        metrics.append(mets)
    return {'metrics': metrics[1:], 'replay': outs['replay']}


def share(agent):
    """Of the state that one device has."""
    leaves = agent._state
    return sum(x.addressable_data(0).size for x in leaves) / sum(x.size for x in leaves)


def main(out, *args):
    flags = [x for x in args if x.startswith('--')]
    layouts = [x for x in args if x not in flags]
    trained, results, start = {}, {}, None
    for layout in layouts:
        data, fsdp = layout.split('x')
        agent = make(f'--jax.data={data}', f'--jax.fsdp={fsdp}', *flags)
        start = start or begin(agent)
        agent.load(start)
        results[layout] = train(agent, UPDATES)
        results[layout] |= {'state': agent.state, 'share': share(agent)}
        trained[layout] = agent
    saved = agent.save()
    for layout, agent in trained.items():
        agent.load(saved)
        results[layout]['onward'] = train(agent, 2, first=UPDATES)
    Path(out).write_bytes(pickle.dumps({'start': start, 'results': results}))


if __name__ == '__main__':
    main(*sys.argv[1:])
