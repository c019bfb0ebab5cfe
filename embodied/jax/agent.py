"""Agent: runs a Model's pure functions as compiled programs.

The state lives on the device as a flat list and is donated to each train step, which
puts out the weights for acting as buffers of their own. Swapping those is one
assignment, so acting and learning may run in two threads. A train step makes its own
weights: where little moves in memory from call to call, a GPU is faster to launch.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from embodied.clock.agreement import GO_ON, Agreement
from embodied.core import base

from .acting import RowPolicy
from .batch_transfer import BatchLayout, PackedBatch
from .devices import Devices, memory_in_use, placed
from .distributed import await_all, take_from_first
from .model import Model
from .pending import Pending
from .programs import Compiled, Compiler, Program
from .rollout import Members, Rolled, Rollout
from .tree import Packer, Tree

__all__ = ['Agent', 'policy_key']

# Streams of random numbers: reports must not disturb training or acting.
INIT, TRAIN, POLICY, REPORT = range(4)

MOVED = 'moved'  # in the place of those arrays of a batch that the device has


class Agent(base.Agent):
    """The contract of embodied.Agent for any Model.

    Outs and metrics of `train` belong to the call before: fetching them then does not
    wait for the device. `on_update` is called with an array that is ready when the
    update is, for measurements.
    """

    def __init__(
        self,
        model: Model,
        seed: int = 0,
        eval_greedy: bool = False,
        policy_device: jax.Device | None = None,
        devices: Devices | None = None,
    ):
        """policy_device: where acting is computed; None is where training is."""
        self.model = model
        self._devices = devices = devices or Devices()
        self._policy_device = policy_device or devices.first
        self.agreement = None if devices.single else Agreement(devices.replica)
        self._key = jax.random.key(seed)
        self._eval_greedy = eval_greedy
        init = lambda: model.init(jax.random.fold_in(self._key, INIT))
        self._names = Tree(jax.eval_shape(init))
        pack = lambda: model.pack(init())
        state = jax.eval_shape(pack)
        self._tree = Tree(state)
        self._places = [
            devices.vector if large else devices.whole
            for large in jax.tree.leaves(model.large(state))
        ]
        make = jax.jit(lambda: self._tree.flatten(pack()), out_shardings=self._places)
        self._state = make()
        acting = lambda: model.policy_params(model.weights(pack()))
        self._policy_tree = Tree(jax.eval_shape(acting))
        self._updates = 0
        self._counts = {TRAIN: 0, POLICY: 0, REPORT: 0}
        self.idle = True  # whether the last update found the device with nothing to do
        self.on_update: Callable[[jax.Array], Any] | None = None
        self._pending: Pending | None = None
        self._layouts: dict[tuple, BatchLayout] = {}
        self._joins = devices.alone and jax.default_backend() == 'gpu'
        self._losses, self._metrics, self._report_metrics = Packer(), Packer(), Packer()
        self._compiler = compiler = Compiler()
        rows, whole = devices.rows, devices.whole
        places: tuple = (self._places, whole, rows, rows, whole, whole, whole)
        self._train_program = Program('train', compiler, self._train, (0,), places)
        places = (rows, whole, whole)
        self._report_program = Program('report', compiler, self._report, (), places)
        self._policies, self._row_policies = {}, {}
        for greedy in (False, True):
            policy = functools.partial(self._policy, greedy=greedy)
            self._policies[greedy] = Program('policy', compiler, policy)
            self._row_policies[greedy] = RowPolicy(
                policy, compiler, self._policy_device
            )
        self._snapshot_program = jax.jit(self._snapshot_of, out_shardings=whole)
        self._pack_program = jax.jit(self._pack)
        self._unpack_program = jax.jit(self._unpack)
        self._init_policy_program = jax.jit(model.init_policy, static_argnums=0)
        self._init_train_program = jax.jit(model.init_train, static_argnums=0)
        self._use(self._snapshot_program(self._state))
        self.rollout: Rollout | None = None

    @property
    def params(self) -> Any:
        """The trained parameters as the model's own tree."""
        return self._names.unflatten(self._unpacked())['params']

    @property
    def state(self) -> dict[str, np.ndarray]:
        """Host copies by name of all that training changes."""
        return self._names.save(self._unpacked())

    @property
    def updates(self) -> int:
        """Train calls so far."""
        return self._updates

    @property
    def compiled(self) -> list[Compiled]:
        """The large programs so far, with the time that each took."""
        return list(self._compiler.log)

    def compiling(self) -> list[tuple[str, float]]:
        """The programs that are being compiled, and for how many seconds."""
        return self._compiler.running()

    def device_memory(self) -> dict[str, float]:
        """Gigabytes in use on its devices, as metrics; empty on a CPU."""
        return memory_in_use(jax.local_devices())

    def prepare(self, batch_size: int, batch_length: int, report_length: int) -> None:
        """Begins to compile training and reports, in the background; 0 is none."""
        for program, length, votes in (
            (self._train_program, batch_length, self._votes()),
            (self._report_program, report_length, ()),
        ):
            args = self.arguments(batch_size, length) if length else None
            if args is not None:
                program.prepare(args[2].layout, *args, *votes)

    def arguments(self, batch_size: int, length: int) -> tuple[Any, ...] | None:
        """Shapes and places of what an update gets: state, carry, batch and count.

        None if the model does not say how its batches look.
        """
        rows = self._devices.rows
        mine = self.model.batch_shapes(batch_size, length)
        batch_size *= self._devices.replicas
        batch = self.model.batch_shapes(batch_size, length)
        if mine is None or batch is None:
            return None
        carry = jax.eval_shape(lambda: self.model.init_train(batch_size))
        state = [
            placed(x, place)
            for x, place in zip(self._tree.shapes, self._places, strict=True)
        ]
        count = jax.ShapeDtypeStruct((), np.uint32)
        packed = self._layout(mine).shapes(placed(batch, rows))
        return state, placed(carry, rows), packed, count

    # Acting

    def init_policy(self, batch_size: int) -> base.Carry:
        carry = self._init_policy_program(batch_size)
        return jax.device_put(carry, self._policy_device)

    def policy(
        self, carry: base.Carry, obs: base.Batch, mode: str = 'train'
    ) -> tuple[base.Carry, base.Batch, base.Batch]:
        obs, count, greedy = self._policy_inputs(obs, mode)
        leaves = tuple((x.shape, x.dtype) for x in jax.tree.leaves(carry))
        carry, *results = self._policies[greedy](
            (leaves, signature(obs)), self._snapshot, carry, obs, count
        )
        return carry, *jax.tree.map(np.asarray, results)

    @property
    def policy_params(self) -> Any:
        """What acting computes with, as the model's own tree."""
        return self._policy_tree.unflatten(self._snapshot)

    def init_table(self, rows: int) -> base.Carry:
        """Carries of `rows` environments, to stay on the device."""
        return self.init_policy(rows)

    def resize_table(self, table: base.Carry, rows: int) -> base.Carry:
        """The table with another number of rows; what is in new ones is arbitrary."""
        given = np.arange(rows)
        keep = lambda leaf: leaf[np.where(given < len(leaf), given, 0)]
        return jax.tree.map(keep, table)

    def policy_rows(
        self, table: base.Carry, rows: base.Array, obs: base.Batch, mode: str = 'train'
    ) -> tuple[base.Carry, base.Batch, base.Batch]:
        """Like `policy` for the carries in these rows of the table, which is donated.

        A row may be given twice if its carry is not read, as row 0 for padding.
        """
        obs, count, greedy = self._policy_inputs(obs, mode)
        return self._row_policies[greedy](self._snapshot, table, rows, obs, count)

    def play_on_device(self, members: Members, steps: int, seed: Any = None) -> None:
        """From now on `roll` plays these environments, `steps` steps at a time."""
        policy = functools.partial(self._policy, greedy=False)
        carry, keys = self.init_policy(members.num), tuple(self.model.policy_keys)
        where = self._compiler, self._policy_device
        self.rollout = Rollout(members, steps, policy, keys, carry, *where, seed)

    def roll(self) -> Rolled:
        """Begins the next steps of `play_on_device`."""
        assert self.rollout is not None
        count = self._next_count(POLICY, self.rollout.steps)
        return self.rollout(self._snapshot, count)

    # Learning

    def init_train(self, batch_size: int) -> base.Carry:
        self._devices.check_rows(batch_size)
        return self._rows(self._init_train_program(batch_size))

    def train(
        self, carry: base.Carry, batch: base.Batch
    ) -> tuple[base.Carry, dict, base.Metrics]:
        self.idle = self._pending is None or self._pending.ready
        carry, replay, *results = self.launch(carry, batch)
        replay = {k: self._devices.mine(x) for k, x in replay.items()}
        for array in (*replay.values(), *results):
            if array is not None:
                array.copy_to_host_async()
        if 'stepid' in batch:
            replay = {'stepid': batch['stepid'][:, self.model.context :], **replay}
        pending = Pending(self._updates, replay, *results)
        if self.on_update is not None:
            self.on_update(pending.losses)
        before, self._pending = self._pending, pending
        return carry, *self._fetch(before)

    def launch(self, carry: base.Carry, batch: base.Batch) -> tuple[Any, ...]:
        """Begins an update and waits for nothing; what it puts out is on the device."""
        count, packed = self._next_count(TRAIN), self._inputs(batch)
        carry = self._rows(carry)
        self._state, snapshot, *results = self._train_program(
            packed.layout, self._state, carry, packed, count, *self._votes()
        )
        self._use(snapshot)
        self._updates += 1
        return tuple(results)

    def stream(self, source: Iterator[base.Batch]) -> Iterator[base.Batch]:
        """Batches on the device; transfers overlap with the running train step."""
        for batch in source:
            rest = {k: v for k, v in batch.items() if k not in self.model.batch_keys}
            yield {**rest, MOVED: self._devices.put_rows(self._pack_batch(batch))}

    # Reporting

    def init_report(self, batch_size: int) -> base.Carry:
        return self.init_train(batch_size)

    def report(
        self, carry: base.Carry, batch: base.Batch
    ) -> tuple[base.Carry, base.Metrics]:
        count, packed = self._next_count(REPORT), self._inputs(batch)
        carry, scalars, arrays = self._report_program(
            packed.layout, self._state, self._rows(carry), packed, count
        )
        arrays = jax.tree.map(np.asarray, arrays)
        return carry, {**self._report_metrics.unpack(scalars), **arrays}

    # Checkpoints

    def save(self) -> dict[str, Any]:
        return {
            'state': self.state,
            'updates': self._updates,
            'counts': dict(self._counts),
            'pending': self._pending and self._pending.save(self._losses),
        }

    def load(self, data: dict[str, Any], regex: str | None = None) -> None:
        """With a regex only matching names are taken and counters stay as they are."""
        leaves = self._names.load(self._unpacked(), data['state'], regex)
        self._place(self._pack_program(leaves))
        if self._devices.single:  # else `follow` is next
            self._use(self._snapshot_program(self._state))
        if regex is None:
            self._updates = data['updates']
            self._counts = dict(data['counts'])
            self._pending = data['pending'] and Pending(**data['pending'])

    # Replicas

    def follow(self, counters: Sequence[int]) -> list[int]:
        """Goes on from the state of replica 0, whose counters are returned.

        All replicas call it after one or all have loaded; it waits for them.
        """
        state = [np.asarray(self._devices.mine(x)) for x in self._state]
        counts = (self._updates, self._counts[TRAIN], self._counts[REPORT])
        state, numbers = take_from_first(state, [*counts, *counters])
        self._updates, self._counts[TRAIN], self._counts[REPORT], *counters = numbers
        self._place(state)
        self._use(self._snapshot_program(self._state))
        if not self._devices.leads:
            self._pending = None  # latents of another replica's steps
        return counters

    def idle_batch(self, batch_size: int, batch_length: int) -> base.Batch:
        """To take part in an update that does not count."""
        shapes = self.model.batch_shapes(batch_size, batch_length)
        assert shapes is not None, 'models of replicas know the shapes of batches'
        return {k: np.zeros(x.shape, x.dtype) for k, x in shapes.items()}

    def part(self) -> None:
        """Waits until all replicas have come to their end."""
        await_all('end')

    # Programs

    def _train(self, leaves, carry, packed, count, votes=None):
        state = self._tree.unflatten(leaves)
        weights, key = self._weights_of(state), stream_key(self._key, TRAIN, count)
        result = self.model.train(state, weights, carry, packed.unpack(), key)
        losses = self._losses.pack(result.losses)
        # A step that went wrong must not reach the parameters: the host sees the
        # losses one step later.
        good, answers = jnp.isfinite(losses).all(), None
        if votes is not None:
            answers = votes.min(0)
            good &= answers[GO_ON] > 0
        keep = lambda new, old: jnp.where(good, new, old)
        new = self._tree.flatten(jax.tree.map(keep, result.state, state))
        new = self._devices.place(new, self._places)
        metrics = self._metrics.pack(result.metrics)
        snapshot = self._snapshot_of(new)
        return new, snapshot, result.carry, result.replay, losses, metrics, answers

    def _report(self, leaves, carry, packed, count):
        state = self._tree.unflatten(leaves)
        weights, key = self._weights_of(state), stream_key(self._key, REPORT, count)
        batch = packed.unpack()
        carry, metrics = self.model.report(state, weights, carry, batch, key)
        scalars = {k: v for k, v in metrics.items() if not v.ndim}
        arrays = {k: v for k, v in metrics.items() if v.ndim}
        return carry, self._report_metrics.pack(scalars), arrays

    def _policy(self, leaves, carry, obs, count, greedy):
        params = self._policy_tree.unflatten(leaves)
        key = stream_key(self._key, POLICY, count)
        if not self._devices.leads:  # Replicas are to see different things.
            key = jax.random.fold_in(key, self._devices.replica)
        return self.model.policy(params, carry, obs, key, greedy)

    def _weights_of(self, state):
        # Once, instead of wherever they are used.
        return jax.lax.optimization_barrier(self.model.weights(state))

    def _snapshot_of(self, leaves):
        weights = self.model.weights(self._tree.unflatten(leaves))
        params = self._policy_tree.flatten(self.model.policy_params(weights))
        # Own buffers: what the train step donates must not be shared with acting.
        return [jnp.copy(x) for x in params]

    def _pack(self, leaves):
        return self._tree.flatten(self.model.pack(self._names.unflatten(leaves)))

    def _unpack(self, leaves):
        return self._names.flatten(self.model.unpack(self._tree.unflatten(leaves)))

    # Helpers

    def _use(self, snapshot: list[jax.Array]) -> None:
        """From now on, act with these."""
        if not self._devices.alone:  # Each device has them all, and one is to act.
            snapshot = [x.addressable_data(0) for x in snapshot]
        if self._policy_device is not None:
            snapshot = jax.device_put(snapshot, self._policy_device)
        self._snapshot = snapshot

    def _policy_inputs(
        self, obs: base.Batch, mode: str
    ) -> tuple[base.Batch, np.uint32, bool]:
        obs = {k: obs[k] for k in self.model.policy_keys}
        greedy = self._eval_greedy and mode == 'eval'
        return obs, self._next_count(POLICY), greedy

    def _fetch(self, pending: Pending | None) -> tuple[dict, base.Metrics]:
        if pending is None or self._is_over(pending):
            return {}, {}
        pending.check_finite(self._losses)
        outs = {'replay': jax.tree.map(np.asarray, pending.replay)}
        return outs, self._metrics.unpack(pending.metrics)

    def _is_over(self, pending: Pending) -> bool:
        """Whether a replica wanted neither that update nor the one after it."""
        if self.agreement is None or pending.answers is None:
            return False
        self.agreement.learn(np.asarray(pending.answers))
        if self.agreement.over:
            self._updates -= 2
            self._pending = None
        return self.agreement.over

    def _inputs(self, batch: Mapping[str, Any]) -> PackedBatch:
        return batch[MOVED] if MOVED in batch else self._rows(self._pack_batch(batch))

    def _pack_batch(self, batch: Mapping[str, Any]) -> PackedBatch:
        return self._layout(batch).pack(batch)

    def _layout(self, batch: Mapping[str, Any]) -> BatchLayout:
        """How batches of this kind go to the device; there is one for each kind."""
        chosen = {k: batch[k] for k in self.model.batch_keys}
        key = signature(chosen)
        if (known := self._layouts.get(key)) is not None:
            return known
        # Two threads may come here at once, and programs are known by their layout.
        return self._layouts.setdefault(key, BatchLayout(chosen, self._joins))

    def _rows(self, tree: Any) -> Any:
        """Where programs want them; a single device takes them from anywhere."""
        return tree if self._devices.alone else self._devices.put_rows(tree)

    def _votes(self) -> tuple[jax.Array, ...]:
        """An argument of training that only replicas have."""
        if self.agreement is None:
            return ()
        rows = self._devices.data * self._devices.fsdp
        return (self._devices.put_rows(np.tile(self.agreement.votes, (rows, 1))),)

    def _place(self, state: Sequence[Any]) -> None:
        placed = zip(state, self._places, strict=True)
        self._state = [self._devices.share(*x) for x in placed]

    def _unpacked(self) -> list[jax.Array]:
        return self._unpack_program([self._devices.mine(x) for x in self._state])

    def _next_count(self, stream: int, calls: int = 1) -> np.uint32:
        """Number of the first of these calls."""
        self._counts[stream] += calls
        return np.uint32(self._counts[stream] - calls + 1)


def policy_key(seed: Any, count: Any) -> jax.Array:
    """The key of the policy of an agent with this seed in its call number `count`, from
    1."""
    return stream_key(jax.random.key(seed), POLICY, count)


def stream_key(key: jax.Array, stream: int, count: jax.Array) -> jax.Array:
    """The key of call number `count` in one of the streams of random numbers."""
    return jax.random.fold_in(jax.random.fold_in(key, stream), count)


def signature(batch: Mapping[str, Any]) -> tuple:
    """Names, shapes and types: what a program is compiled for."""
    return tuple((k, v.shape, np.dtype(v.dtype)) for k, v in batch.items())
