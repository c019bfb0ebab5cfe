"""Dispatch: what a call of the compiled train step costs beside the work on the device.

    python bench/dispatch.py

The model has the arrays of an agent but next to nothing to compute, so the time of a
call is the time of Python and of handing 200 arrays over.
"""

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import embodied.jax
from embodied.jax import nets
from embodied.jax.model import TrainResult

LAYERS = 22  # of 3 arrays each
COPIES = ('params', 'second', 'momentum')  # as many as the optimizer keeps
WARMUP, CALLS = 20, 300


class Still(embodied.jax.Model):
    """Has the state of an agent and counts its updates."""

    policy_keys = ('x',)
    batch_keys = ('x',)

    def init(self, key: jax.Array) -> dict[str, Any]:
        make = lambda init: nets.MLP(init, 4, 4, LAYERS)
        return {name: nets.build(make, key) for name in COPIES}

    def weights(self, state: dict[str, Any]) -> Any:
        return state['params']

    def init_policy(self, batch: int) -> jax.Array:
        return jnp.zeros((batch, 4))

    init_train = init_policy

    def train(
        self, state: Any, weights: Any, carry: Any, batch: dict, key: jax.Array
    ) -> TrainResult:
        state = jax.tree.map(lambda x: x + 1, state)
        loss = {'loss': batch['x'].mean()}
        return TrainResult(state, carry, loss, {'latent': carry}, loss)


def main() -> None:
    embodied.jax.setup('cpu')
    agent = embodied.jax.Agent(Still())
    batch = {'x': np.zeros((16, 64), np.float32)}
    carry = agent.init_train(16)
    arrays = jax.tree.leaves(Still().init(jax.random.key(0)))
    figures = {
        'bench': 'dispatch',
        'arrays': len(arrays),
        'train_ms': milliseconds(lambda: agent.train(carry, batch)),
    }
    print(json.dumps(figures))


def milliseconds(call: Callable[[], Any]) -> float:
    """Median time of a call."""
    times = []
    for _ in range(WARMUP + CALLS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return round(1000 * statistics.median(times[WARMUP:]), 3)


if __name__ == '__main__':
    main()
