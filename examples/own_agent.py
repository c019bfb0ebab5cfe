"""An agent of your own: a head and a loss more, with options of its own.

Where rewards are rare, it may help if the state tells whether one was just found.

python examples/own_agent.py LOGDIR [STEPS] [PRESET]

The same on the command line, from the folder that this file is in:

dreamer train --agent.module own_agent:FindReward --agent.own.scale 0.5
"""

import dataclasses
import sys

import dreamerv3
from dreamerv3.agent.networks.heads import BinaryHead


class FindReward(dreamerv3.Dreamer):
    """Predicts from each state whether its reward is positive."""

    options = {
        'scale': 1.0,  # weight of the loss
        'layers': 1,  # layers of the head
        'units': 1024,  # their width
    }

    def make_nets(self, init):
        nets = super().make_nets(init)
        head = BinaryHead(init, self.feat_size, self.config.own)
        return dataclasses.replace(nets, own={'found': head})

    @property
    def loss_scales(self):
        return {**super().loss_scales, 'found': self.config.own.scale}

    def world_losses(self, params, batch, seen, key):
        losses, metrics = super().world_losses(params, batch, seen, key)
        found = params.own['found'](seen.states.feat)
        truth = batch['reward'] > 0
        losses['found'] = found.loss(1.0 * truth)
        metrics['found/right'] = ((found.prob() > 0.5) == truth).mean()
        return losses, metrics


def main(logdir, steps=4000, preset='tiny'):
    options = {'agent.module': 'own_agent:FindReward', 'agent.own.scale': 0.5}
    run = dreamerv3.train(
        task='toy_reach',
        logdir=logdir,
        steps=float(steps),
        configs=[preset],
        options=options,
    )
    losses = run.metric('train/loss/found')[1]
    right = run.metric('train/found/right')[1]
    print(
        f'loss {losses[0]:.3f} -> {losses[-1]:.3f}, right in {right[-1]:.0%} of steps'
    )


if __name__ == '__main__':
    main(*sys.argv[1:])
