"""Model: what an algorithm provides; the Agent compiles and runs it."""

from typing import Any, NamedTuple

import jax

__all__ = ['Model', 'TrainResult']


class TrainResult(NamedTuple):
    """state, carry: like the inputs. losses: scalars that must be finite, in order.

    replay: [B, T, ...] arrays to write back to replay. metrics: scalars.
    """

    state: Any
    carry: Any
    losses: dict[str, jax.Array]
    replay: dict[str, jax.Array]
    metrics: dict[str, jax.Array]


class Model:
    """Pure functions over a state of arrays. Random numbers come from the key."""

    policy_keys: tuple[str, ...]  # observation keys that the policy reads
    batch_keys: tuple[str, ...]  # batch keys that training and reports read
    context: int = 0  # steps of a batch that are not trained on

    def init(self, key: jax.Array) -> Any:
        """All that training changes, at the beginning, as a tree of named tensors;
        tree['params'] is what the optimizer changes."""
        raise NotImplementedError('init(key) -> tree')

    def pack(self, tree: Any) -> Any:
        """The tree in the form that is kept on the device between updates."""
        return tree

    def unpack(self, state: Any) -> Any:
        """The inverse of pack."""
        return state

    def large(self, state: Any) -> Any:
        """Whether each array of the packed state may be split over devices, along its
        first axis; their number divides it."""
        return jax.tree.map(lambda x: False, state)

    def weights(self, state: Any) -> Any:
        """What training and acting compute with, made from the state."""
        raise NotImplementedError('weights(state) -> weights')

    def policy_params(self, weights: Any) -> Any:
        """The part of the weights that acting needs."""
        return weights

    def batch_shapes(
        self, batch: int, length: int
    ) -> 'dict[str, jax.ShapeDtypeStruct] | None':
        """Shapes of a batch by key, as replay serves it; None if they are not known."""
        return None

    def init_policy(self, batch: int) -> Any:
        raise NotImplementedError('init_policy(batch) -> carry')

    def policy(
        self, params: Any, carry: Any, obs: dict, key: jax.Array, greedy: bool
    ) -> tuple[Any, dict, dict]:
        raise NotImplementedError(
            'policy(params, carry, obs, key, greedy) -> carry, acts, outs'
        )

    def init_train(self, batch: int) -> Any:
        raise NotImplementedError('init_train(batch) -> carry')

    def train(
        self, state: Any, weights: Any, carry: Any, batch: dict, key: jax.Array
    ) -> TrainResult:
        raise NotImplementedError('train(state, weights, carry, batch, key) -> result')

    def report(
        self, state: Any, weights: Any, carry: Any, batch: dict, key: jax.Array
    ) -> tuple[Any, dict[str, jax.Array]]:
        raise NotImplementedError(
            'report(state, weights, carry, batch, key) -> carry, metrics'
        )
