"""Actions: one dict of keys, each discrete or continuous, handled as a whole."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import elements
import jax
import jax.numpy as jnp
import numpy as np

from embodied.core.errors import SpaceError

from .networks.inputs import flat_size, num_classes

__all__ = ['Actions', 'Values']

Dists: TypeAlias = dict[str, Any]
Values: TypeAlias = dict[str, jax.Array]


class Actions:
    """The agent's action space: keys in sorted order, without `reset`."""

    def __init__(self, spaces: Mapping[str, elements.Space]):
        if not spaces:
            raise SpaceError(
                'The environment has no action for the agent. Add at least one '
                "discrete or continuous key beside 'reset' to its act_space."
            )
        self.spaces = {name: spaces[name] for name in sorted(spaces)}
        for name, space in self.spaces.items():
            _check(name, space)

    @property
    def continuous(self) -> tuple[str, ...]:
        """Names of the continuous keys."""
        return tuple(k for k, space in self.spaces.items() if not space.discrete)

    @property
    def discrete(self) -> tuple[str, ...]:
        """Names of the discrete keys."""
        return tuple(k for k, space in self.spaces.items() if space.discrete)

    @property
    def size(self) -> int:
        """Width of `vector`."""
        return sum(flat_size(name, space) for name, space in self.spaces.items())

    def zeros(self, batch: int) -> Values:
        return {
            name: jnp.zeros((batch, *space.shape), space.dtype)
            for name, space in self.spaces.items()
        }

    def vector(self, actions: Mapping[str, jax.Array], dtype: Any) -> jax.Array:
        """Actions [..., *shape] of each key -> [..., size], discrete ones one-hot."""
        onehot = {
            name: jax.nn.one_hot(actions[name].astype(jnp.int32), num_classes(name, x))
            for name, x in self.spaces.items()
            if x.discrete
        }
        return self.join({**actions, **onehot}, dtype)

    def noise(self, key: jax.Array, lead: tuple[int, ...]) -> Values:
        """All that is random about sampling a batch [*lead] of actions."""
        noise = {}
        keys = jax.random.split(key, len(self.spaces))
        for k, (name, space) in zip(keys, self.spaces.items(), strict=True):
            shape = (*lead, *space.shape)
            if space.discrete:
                shape = (*shape, num_classes(name, space))
                noise[name] = jax.random.gumbel(k, shape, jnp.float32)
            else:
                noise[name] = jax.random.normal(k, shape, jnp.float32)
        return noise

    def sample(self, dists: Dists, noise: Values) -> Values:
        return {name: dists[name].sample(noise[name]) for name in self.spaces}

    def draw(self, dists: Dists, noise: Values) -> Values:
        """Like `sample`, but discrete ones as one-hot [..., *shape, classes]."""
        drawn = self.sample(dists, noise)
        for name, space in self.spaces.items():
            if space.discrete:
                drawn[name] = dists[name].draw(noise[name])
        return drawn

    def join(self, drawn: Values, dtype: Any) -> jax.Array:
        """The `vector` of actions that were drawn."""
        parts = []
        for name, space in self.spaces.items():
            rank = len(space.shape) + space.discrete
            lead = drawn[name].shape[: drawn[name].ndim - rank]
            parts.append(drawn[name].astype(dtype).reshape(*lead, -1))
        return jnp.concatenate(parts, -1)

    def settle(self, drawn: Values) -> Values:
        """Actions that were drawn, as `sample` returns them."""
        return {
            name: drawn[name].argmax(-1) if space.discrete else drawn[name]
            for name, space in self.spaces.items()
        }

    def pred(self, dists: Dists) -> Values:
        return {name: dists[name].pred() for name in self.spaces}

    def cast(self, actions: Values) -> Values:
        """Actions in the dtypes of their spaces, as environments expect them."""
        return {k: actions[k].astype(space.dtype) for k, space in self.spaces.items()}

    def logp(
        self, dists: Dists, actions: Values, names: Iterable[str] | None = None
    ) -> jax.Array:
        """log pi(a) [...], summed over the keys, or over those that are named."""
        names = self.spaces if names is None else names
        return sum(dists[name].logp(actions[name]) for name in names)


def _check(name: str, space: elements.Space) -> None:
    if not space.discrete:
        if np.all(np.isfinite(space.low)) and np.all(np.isfinite(space.high)):
            return
        raise SpaceError(
            f"Action '{name}' is {space}: continuous actions need finite bounds. "
            'Declare low and high, and wrap the environment in NormalizeAction.'
        )
    classes = np.broadcast_to(np.asarray(space.high), space.shape)
    if classes.size and np.any(classes != classes.flat[0]):
        raise SpaceError(
            f"Action '{name}' has {classes.tolist()} classes per element, which must "
            'be equal within a key. Split it in one key per element.'
        )
    num_classes(name, space)
