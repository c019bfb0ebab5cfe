"""A trained agent in the hands of a user: act and imagine, NumPy in and out."""

import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from embodied.core.base import Batch, Carry, Spaces
from embodied.core.checkpoint import is_own, load_part_and_step
from embodied.core.errors import SpaceError

from ..agent.dreamer import Agent
from ..agent.model import Dreamer, PolicyParams
from . import bundle, foreign, hub
from .origin import Origin
from .predict import predict
from .shaping import batched

__all__ = ['Imagined', 'LoadedAgent', 'load', 'load_player']

PIXEL = 255  # largest value of an image


class Imagined(NamedTuple):
    """Steps that the model predicts, [H, ...] or [B, H, ...].

    obs: by key, in the dtypes of the observations. reward: received on entering each
    step. cont: probability that the episode goes on after it. A model without decoder
    predicts no observations.
    """

    obs: Batch
    reward: np.ndarray
    cont: np.ndarray

    @property
    def frames(self) -> Batch:
        """The images among the observations."""
        return {k: v for k, v in self.obs.items() if v.dtype == np.uint8}


def load(
    path: str | os.PathLike, flags: Sequence[str] = (), trust: bool = False
) -> 'LoadedAgent':
    """The agent of a run, of one of its checkpoints or of an exported bundle, which
    may lie on the hub of Hugging Face: hf:owner/name.

    `flags` change the options that it was trained with, as on the command line:
    load(path, ['--jax.platform', 'cpu']). No code of others runs while it is loaded,
    unless `trust` allows it: checkpoints with more than arrays need that.
    """
    return _load(path, flags, trust, play=False)


def load_player(
    path: str | os.PathLike, flags: Sequence[str], trust: bool
) -> 'LoadedAgent':
    """The same for playing its task, which is refused if that would run the code of
    others without `trust`."""
    return _load(path, flags, trust, play=True)


def _load(
    source: str | os.PathLike, flags: Sequence[str], trust: bool, play: bool
) -> 'LoadedAgent':
    path = hub.locate(source)
    if bundle.is_bundle(path):
        origin, state, step = bundle.read(path)
        own = False
    else:
        data, step = load_part_and_step(path, 'agent', trust)
        origin, state = Origin.of_checkpoint(data, path), data['state']
        own = is_own(path, 'agent')
    taken = foreign.take(flags, origin.config, own, trust, source)
    if play:
        taken.check_task()
    return LoadedAgent(origin._replace(config=taken.config), state, step)


class LoadedAgent:
    """Acts and imagines; does not learn. Made by `dreamerv3.load`.

    `init_policy` and `policy` are those of the Agent contract, for a Driver.
    """

    def __init__(self, origin: Origin, state: Mapping[str, np.ndarray], step: int):
        self.config = origin.config
        self.step = step  # environment steps that it was trained for
        # Greedy in mode 'eval', so that both ways to act can be chosen per call.
        changes = {'agent.eval_greedy': True, 'jax.data': 1, 'jax.fsdp': 1}
        config = origin.config.update(changes)
        self._agent = Agent(origin.obs_space, origin.act_space, config)
        self._agent.load({'state': state}, regex=bundle.WEIGHTS)
        self._predict = jax.jit(functools.partial(predict, self._agent.model))
        self.init_policy = self._agent.init_policy
        self.policy = self._agent.policy

    @property
    def obs_space(self) -> Spaces:
        """What `act` needs to see, by key."""
        model = self._agent.model
        return {k: self._agent.origin.obs_space[k] for k in model.encoded}

    @property
    def act_space(self) -> Spaces:
        return self._agent.origin.act_space

    @property
    def model(self) -> Dreamer:
        """The pure functions that it consists of."""
        return self._agent.model

    @property
    def policy_params(self) -> PolicyParams:
        """What `model.policy` computes with."""
        return self._agent.policy_params

    def act(
        self, obs: Mapping[str, Any], state: Carry | None = None, greedy: bool = False
    ) -> tuple[Batch, Carry]:
        """The action for an observation, and the state to hand in with the next one.

        obs: one observation, or a batch with one more axis in front of every key. An
        episode begins where state is None or obs['is_first'] is true; other keys than
        those of `obs_space` are ignored. greedy: the most likely action instead of a
        sample.
        """
        batch, single = batched(obs, self.obs_space, axes=1)
        rows = len(next(iter(batch.values())))
        first = np.broadcast_to(np.asarray(obs.get('is_first', False), bool), rows)
        if state is None:
            state, first = self.init_policy(rows), np.ones(rows, bool)
        elif (known := len(jax.tree.leaves(state)[0])) != rows:
            raise SpaceError(
                f'The state is of {known} environments, the observation of {rows}. '
                'Hand in the state that `act` returned for the same environments.'
            )
        mode = 'eval' if greedy else 'train'
        state, acts, _ = self.policy(state, {**batch, 'is_first': first}, mode)
        return ({k: v[0] for k, v in acts.items()} if single else acts), state

    def imagine(
        self, obs: Mapping[str, Any], actions: Mapping[str, Any], seed: int = 0
    ) -> Imagined:
        """What the model expects to see if `actions` go on after it has seen `obs`.

        obs: the T steps from the beginning of an episode, [T, ...] per key, or
        [B, T, ...]. actions: one after each step, the last H of them for steps to
        imagine: [T - 1 + H, ...] per key, or [B, T - 1 + H, ...]. The H predicted
        steps are one sample of the future; another seed gives another one.
        """
        seen, single = batched(obs, self.obs_space, axes=2)
        acts, _ = batched(actions, self.act_space, axes=2)
        rows, length = next(iter(seen.values())).shape[:2]
        _check_actions(acts, rows, length)
        first = np.zeros((rows, length), bool)
        first |= np.asarray(obs.get('is_first', False), bool)
        first[:, 0] = True
        # The action before the first step is not looked at.
        before = {k: np.roll(v, 1, axis=1)[:, :length] for k, v in acts.items()}
        after = {k: v[:, length - 1 :] for k, v in acts.items()}
        outs = self._predict(
            self._agent.params,
            {**seen, 'is_first': first},
            before,
            after,
            jax.random.key(seed),
        )
        outs = jax.tree.map(lambda x: np.asarray(x)[0 if single else ...], outs)
        observed = {k: self._observed(k, v) for k, v in outs['obs'].items()}
        return Imagined(observed, outs['reward'], outs['cont'])

    def _observed(self, name: str, value: np.ndarray) -> np.ndarray:
        """A prediction in the form of the observation."""
        if name in self._agent.model.inputs.images:
            value = np.round(PIXEL * np.clip(value.astype(np.float32), 0, 1))
        return value.astype(self.obs_space[name].dtype)


def _check_actions(acts: Batch, rows: int, length: int) -> None:
    shapes = {k: v.shape[:2] for k, v in acts.items()}
    sizes = set(shapes.values())
    if len(sizes) > 1 or any(b != rows or t < length for b, t in sizes):
        raise SpaceError(
            f'{rows} sequences of {length} observed steps need as many actions at '
            f'least ({length - 1} between them and one to imagine), the same number of '
            f'each key. Got: {shapes}.'
        )
