"""Agent: runs a Model's pure functions as compiled programs.

The state lives on the device as a flat list and is donated to each train step. Acting
reads a snapshot of its own, which the train step puts out as well: swapping it is one
assignment, so acting and learning may run in two threads.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from embodied.core import base
from embodied.core.errors import NonFiniteError

from .model import Model
from .programs import Packer, Tree

__all__ = ['Agent']

# Streams of random numbers: reports must not disturb training or acting.
INIT, TRAIN, POLICY, REPORT = range(4)


class Pending(NamedTuple):
    """What an update left on the device, for the next call to fetch."""

    update: int
    replay: dict[str, Any]
    losses: Any
    metrics: Any


class Agent(base.Agent):
    """The contract of embodied.Agent for any Model.

    Outs and metrics of `train` belong to the call before: fetching them then does not
    wait for the device.
    """

    def __init__(self, model: Model, seed: int = 0, eval_greedy: bool = False):
        self.model = model
        self._key = jax.random.key(seed)
        self._eval_greedy = eval_greedy
        init = lambda: model.init(jax.random.fold_in(self._key, INIT))
        self._tree = Tree(jax.eval_shape(init))
        self._state = jax.jit(lambda: self._tree.flatten(init()))()
        shapes = jax.eval_shape(lambda: model.policy_params(init()))
        self._policy_tree = Tree(shapes)
        self._updates = 0
        self._counts = {TRAIN: 0, POLICY: 0, REPORT: 0}
        self._pending: Pending | None = None
        self._losses, self._metrics, self._report_metrics = Packer(), Packer(), Packer()
        self._train_program = jax.jit(self._train, donate_argnums=0)
        self._report_program = jax.jit(self._report)
        self._policy_program = jax.jit(self._policy, static_argnums=4)
        self._rows_program = jax.jit(
            self._policy_rows, static_argnums=5, donate_argnums=1
        )
        self._snapshot_program = jax.jit(self._snapshot_of)
        self._init_policy_program = jax.jit(model.init_policy, static_argnums=0)
        self._init_train_program = jax.jit(model.init_train, static_argnums=0)
        self._snapshot = self._snapshot_program(self._state)

    @property
    def params(self) -> Any:
        """The trained parameters as the model's own tree."""
        return self._tree.unflatten(self._state)['params']

    @property
    def state(self) -> dict[str, np.ndarray]:
        """Host copies by name of all that training changes."""
        return self._tree.save(self._state)

    @property
    def updates(self) -> int:
        """Train calls so far."""
        return self._updates

    # Acting

    def init_policy(self, batch_size: int) -> base.Carry:
        return self._init_policy_program(batch_size)

    def policy(
        self, carry: base.Carry, obs: base.Batch, mode: str = 'train'
    ) -> tuple[base.Carry, base.Batch, base.Batch]:
        carry, *results = self._policy_program(
            self._snapshot, carry, *self._policy_inputs(obs, mode)
        )
        return carry, *jax.tree.map(np.asarray, results)

    def init_table(self, rows: int) -> base.Carry:
        """Carries of `rows` environments, to stay on the device."""
        return self._init_policy_program(rows)

    def policy_rows(
        self, table: base.Carry, rows: base.Array, obs: base.Batch, mode: str = 'train'
    ) -> tuple[base.Carry, base.Batch, base.Batch]:
        """Like `policy` for the carries in these rows of the table, which is donated.

        A row may be given twice if nobody reads its carry, as row 0 for padding.
        """
        rows = np.asarray(rows, np.int32)
        table, *results = self._rows_program(
            self._snapshot, table, rows, *self._policy_inputs(obs, mode)
        )
        return table, *jax.tree.map(np.asarray, results)

    # Learning

    def init_train(self, batch_size: int) -> base.Carry:
        return self._init_train_program(batch_size)

    def train(
        self, carry: base.Carry, batch: base.Batch
    ) -> tuple[base.Carry, dict, base.Metrics]:
        count = self._next_count(TRAIN)
        self._state, self._snapshot, carry, replay, losses, metrics = (
            self._train_program(self._state, carry, self._select(batch), count)
        )
        self._updates += 1
        for array in (*replay.values(), losses, metrics):
            array.copy_to_host_async()
        if 'stepid' in batch:
            replay = {'stepid': batch['stepid'][:, self.model.context :], **replay}
        pending = Pending(self._updates, replay, losses, metrics)
        before, self._pending = self._pending, pending
        return carry, *self._fetch(before)

    def stream(self, source: Iterator[base.Batch]) -> Iterator[base.Batch]:
        """Batches on the device; transfers overlap with the running train step."""
        for batch in source:
            yield {**batch, **jax.device_put(self._select(batch))}

    # Reporting

    def init_report(self, batch_size: int) -> base.Carry:
        return self._init_train_program(batch_size)

    def report(
        self, carry: base.Carry, batch: base.Batch
    ) -> tuple[base.Carry, base.Metrics]:
        count = self._next_count(REPORT)
        carry, scalars, arrays = self._report_program(
            self._state, carry, self._select(batch), count
        )
        arrays = jax.tree.map(np.asarray, arrays)
        return carry, {**self._report_metrics.unpack(scalars), **arrays}

    # Checkpoints

    def save(self) -> dict[str, Any]:
        return {
            'state': self.state,
            'updates': self._updates,
            'counts': dict(self._counts),
            'pending': self._save_pending(),
        }

    def load(self, data: dict[str, Any], regex: str | None = None) -> None:
        """With a regex only matching names are taken and counters stay as they are."""
        self._state = self._tree.load(self._state, data['state'], regex)
        self._snapshot = self._snapshot_program(self._state)
        if regex is None:
            self._updates = data['updates']
            self._counts = dict(data['counts'])
            self._pending = data['pending'] and Pending(**data['pending'])

    def _save_pending(self) -> Any:
        """Latents and metrics of the last update, which nobody has fetched yet."""
        if self._pending is None:
            return None
        # A checkpoint with a bad update in it could never be resumed from.
        self._check_finite(self._pending)
        return jax.tree.map(lambda x: np.array(x, copy=True), self._pending._asdict())

    # Programs

    def _train(self, leaves, carry, batch, count):
        state = self._tree.unflatten(leaves)
        key = self._key_for(TRAIN, count)
        result = self.model.train(state, carry, batch, key)
        losses = self._losses.pack(result.losses)
        # A step that went wrong must not reach the parameters: the host sees the
        # losses one step later.
        finite = jnp.isfinite(losses).all()
        keep = lambda new, old: jnp.where(finite, new, old)
        state = jax.tree.map(keep, result.state, state)
        new = self._tree.flatten(state)
        metrics = self._metrics.pack(result.metrics)
        return (
            new,
            self._snapshot_of(new),
            result.carry,
            result.replay,
            losses,
            metrics,
        )

    def _report(self, leaves, carry, batch, count):
        state = self._tree.unflatten(leaves)
        key = self._key_for(REPORT, count)
        carry, metrics = self.model.report(state, carry, batch, key)
        scalars = {k: v for k, v in metrics.items() if not v.ndim}
        arrays = {k: v for k, v in metrics.items() if v.ndim}
        return carry, self._report_metrics.pack(scalars), arrays

    def _policy(self, leaves, carry, obs, count, greedy):
        params = self._policy_tree.unflatten(leaves)
        key = self._key_for(POLICY, count)
        return self.model.policy(params, carry, obs, key, greedy)

    def _policy_rows(self, leaves, table, rows, obs, count, greedy):
        carry = jax.tree.map(lambda x: x[rows], table)
        carry, acts, outs = self._policy(leaves, carry, obs, count, greedy)
        table = jax.tree.map(lambda x, new: x.at[rows].set(new), table, carry)
        return table, acts, outs

    def _snapshot_of(self, leaves):
        params = self.model.policy_params(self._tree.unflatten(leaves))
        # Own buffers: what the train step donates must not be shared with acting.
        return [jnp.copy(x) for x in self._policy_tree.flatten(params)]

    # Helpers

    def _policy_inputs(
        self, obs: base.Batch, mode: str
    ) -> tuple[base.Batch, np.uint32, bool]:
        obs = {k: obs[k] for k in self.model.policy_keys}
        greedy = self._eval_greedy and mode == 'eval'
        return obs, self._next_count(POLICY), greedy

    def _fetch(self, pending: 'Pending | None') -> tuple[dict, base.Metrics]:
        if pending is None:
            return {}, {}
        self._check_finite(pending)
        outs = {'replay': jax.tree.map(np.asarray, pending.replay)}
        return outs, self._metrics.unpack(pending.metrics)

    def _check_finite(self, pending: 'Pending') -> None:
        if np.isfinite(np.asarray(pending.losses)).all():
            return
        losses = self._losses.unpack(pending.losses)
        name = next(name for name, value in losses.items() if not np.isfinite(value))
        raise NonFiniteError(
            f"The loss '{name}' became {losses[name]} in update {pending.update}. The "
            'parameters of before are kept. Check the environment for NaN or huge '
            'observations and rewards, or lower agent.opt.lr.'
        )

    def _select(self, batch: base.Batch) -> base.Batch:
        return {k: batch[k] for k in self.model.batch_keys}

    def _next_count(self, stream: int) -> np.uint32:
        self._counts[stream] += 1
        return np.uint32(self._counts[stream])

    def _key_for(self, stream: int, count: jax.Array) -> jax.Array:
        return jax.random.fold_in(jax.random.fold_in(self._key, stream), count)
