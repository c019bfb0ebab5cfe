"""The contracts that the rest of the system is written against.

    Agent   turns observations into actions and batches into updates
    Env     one `step(action) -> obs`; VectorEnv: the same for N members at once
    Replay  keeps steps of many streams, serves sequences of them
    Stream  an iterator over batches that can be saved in mid-sequence
    Logger  collects metrics under one step counter

Foreign classes need not inherit: the same methods are enough. Legend of shapes:
B batch, T time, N environments.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

import elements
import numpy as np

__all__ = [
    'Agent',
    'Array',
    'Batch',
    'Carry',
    'Env',
    'Logger',
    'Metrics',
    'Mode',
    'Replay',
    'Spaces',
    'Stream',
    'VectorEnv',
]

Array: TypeAlias = np.ndarray
Batch: TypeAlias = dict[str, Array]
Carry: TypeAlias = Any
Metrics: TypeAlias = dict[str, Any]
Mode: TypeAlias = Literal['train', 'report', 'eval']
Spaces: TypeAlias = dict[str, elements.Space]


class Agent:
    """Acts, learns and reports. Carries go in and come out and are never mutated.

    A policy carry has leaves that are batch-first arrays or Python lists with one
    entry per row; `()` is valid.
    """

    def init_policy(self, batch_size: int) -> Carry:
        """Carry of `batch_size` environments that have not started yet."""
        raise NotImplementedError('init_policy(batch_size) -> carry')

    def policy(
        self, carry: Carry, obs: Batch, mode: str = 'train'
    ) -> tuple[Carry, Batch, Batch]:
        """Chooses actions for obs [N, ...] -> carry, acts [N, ...], outs [N, ...].

        `outs` are stored in the replay with the transition, except keys that start
        with `log/`. Actions do not contain `reset`.
        """
        raise NotImplementedError(
            "policy(carry, obs, mode='train') -> carry, acts, outs"
        )

    def init_train(self, batch_size: int) -> Carry:
        """Carry of a training stream at its beginning."""
        raise NotImplementedError('init_train(batch_size) -> carry')

    def train(self, carry: Carry, batch: Batch) -> tuple[Carry, dict, Metrics]:
        """One update on [B, T, ...]. outs['replay'] are updates for `Replay.update`.

        Outs and metrics may belong to an earlier call (fetched without waiting) and
        may be empty.
        """
        raise NotImplementedError('train(carry, batch) -> carry, outs, mets')

    def init_report(self, batch_size: int) -> Carry:
        """Carry of a report stream at its beginning."""
        raise NotImplementedError('init_report(batch_size) -> carry')

    def report(self, carry: Carry, batch: Batch) -> tuple[Carry, Metrics]:
        """Metrics, images and videos of a batch, without learning from it."""
        raise NotImplementedError('report(carry, batch) -> carry, mets')

    def stream(self, source: Iterator[Batch]) -> Iterator[Any]:
        """Iterator over the same batches, moved to the device ahead of time."""
        raise NotImplementedError('stream(source) -> iterator')

    def save(self) -> Any:
        """Everything that `load` needs to continue, safe to keep while training."""
        raise NotImplementedError('save() -> data')

    def load(self, data: Any, regex: str | None = None) -> None:
        """Restores `save()`; with a regex only the parameters whose names match."""
        raise NotImplementedError('load(data, regex=None)')


class Env:
    """One environment. Spaces do not change after construction.

    `obs_space` holds the task's keys plus reward (float32), is_first, is_last and
    is_terminal (bool); `log/...` keys are for logging only. `act_space` holds the
    action keys plus reset (bool). An environment whose state can be kept also has
    `save() -> data` and `load(data)`, which make resume exact.
    """

    @property
    def obs_space(self) -> Spaces:
        raise NotImplementedError('obs_space -> dict of elements.Space')

    @property
    def act_space(self) -> Spaces:
        raise NotImplementedError("act_space -> dict of elements.Space with 'reset'")

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        """Starts an episode if action['reset'], else takes one step."""
        raise NotImplementedError('step(action) -> obs')

    def close(self) -> None:
        """Frees processes, windows and files. Called once."""


class VectorEnv:
    """N environments that step together and live and die together.

    `num` is N. Spaces are those of one member, as of `Env`, and do not change. Arrays
    may be of NumPy, JAX or torch, on any device.

    A simulator that resets within its step has two rows of a member in one call. The
    result may then have the key `final`: a pair of member numbers [m] and rows, a dict
    of [m, ...] by key. These are the last rows of episodes that have ended (`is_last`),
    from before the rows [N, ...], in which the members have begun again (`is_first`).

    A vector environment whose state can be kept also has `save() -> data` and
    `load(data)`. One that cannot begin an episode of a single member on request has the
    attribute `resets_members = False`: it ignores `reset` of members in mid-episode.
    """

    num: int

    @property
    def obs_space(self) -> Spaces:
        raise NotImplementedError('obs_space -> dict of elements.Space of one member')

    @property
    def act_space(self) -> Spaces:
        raise NotImplementedError("act_space -> dict of elements.Space with 'reset'")

    def step(self, actions: Mapping[str, Any]) -> dict[str, Any]:
        """Takes actions [N, ...] per key, gives observations [N, ...] per key.

        A member begins an episode if its `reset` is true, else it takes one step.
        """
        raise NotImplementedError('step(actions) -> obs')

    def close(self) -> None:
        """Frees processes, windows and files. Called once."""


class Replay:
    """Keeps steps, serves sequences of `length` consecutive steps of one stream."""

    length: int

    def __len__(self) -> int:
        """Number of sequences that can be sampled."""
        raise NotImplementedError('__len__() -> int')

    def add(self, step: Mapping[str, Any], worker: int = 0) -> None:
        """Appends one step to the stream of `worker`."""
        raise NotImplementedError('add(step, worker=0)')

    def add_batch(self, steps: Batch, workers: Any) -> None:
        """Appends row i of every [N, ...] array to the stream of workers[i]."""
        for row, worker in enumerate(workers):
            self.add({k: v[row] for k, v in steps.items()}, int(worker))

    def sample(self, batch: int, mode: Mode = 'train') -> Batch:
        """[batch, length, ...] per key, with `stepid` uint8[20]."""
        raise NotImplementedError("sample(batch, mode='train') -> batch")

    def update(self, data: Batch) -> None:
        """Overwrites latents or priorities of the steps named by data['stepid']."""

    def stats(self) -> Metrics:
        """Scalars about content and traffic since the last call."""
        return {}

    def save(self) -> Any:
        return None

    def load(self, data: Any) -> None:
        pass


class Stream:
    """Iterator over batches that continues exactly after `load(save())`."""

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        raise NotImplementedError('__next__() -> batch')

    def save(self) -> Any:
        raise NotImplementedError('save() -> data')

    def load(self, data: Any) -> None:
        raise NotImplementedError('load(data)')


class Logger:
    """Collects metrics at the current `step` and writes them on request."""

    step: Any

    def add(self, metrics: Mapping[str, Any], prefix: str | None = None) -> None:
        """Scalars, images [H, W, C], videos [T, H, W, C] and strings by name."""
        raise NotImplementedError('add(metrics, prefix=None)')

    def write(self) -> None:
        raise NotImplementedError('write()')

    def close(self) -> None:
        self.write()
