"""Learner: train steps and policy calls per second of the agent on this device.

    python bench/learner.py                      size12m on a GPU, tiny on a CPU
    python bench/learner.py --size size200m --seconds 10
    python bench/learner.py --size size1m --only train
    python bench/learner.py --devices 8 --only train --jax.fsdp 4

One JSON line per figure. size1m sees a vector of 24 numbers, all others images of 64x64
(tiny: 16x16). `train_steps` is end to end: batches of NumPy arrays go in, moved ahead
as in a distributed run, latents and metrics come out. `device_steps` has its batch on
the device and fetches nothing; their ratio is the share of time in which the device is
busy. `flops` counts matrix products and convolutions with the trips of loops.

`--devices n` splits the batch over n devices, in groups of `--jax.fsdp`. A host without
accelerators pretends to have so many, which share its cores: that shows that it works
and what it costs, but not what it gains.
"""

import argparse
import copy
import json
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import elements
import jax
import numpy as np
from flops import count_flops

import dreamerv3
from dreamerv3 import config as config_lib
from embodied.streams import Prefetch

ACTIONS, VECTOR = 18, 24
ROWS = (1, 16, 64)  # environments per policy call
WARMUP = 5  # calls that are not measured
BARS = {  # train steps/s on one H200: bar and goal
    'size1m': (230, 300),
    'size12m': (92, 110),
    'size50m': (45, 60),
    'size200m': (20, 25),
}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--size', help='a preset of configs.yaml')
    parser.add_argument('--seconds', type=float, default=4, help='of each figure')
    parser.add_argument('--only', choices=('train', 'policy'))
    parser.add_argument('--cache', default='', help='folder of compiled programs')
    parser.add_argument('--platform', default='auto')
    parser.add_argument('--devices', type=int, default=1, help='that train together')
    args, flags = parser.parse_known_args(argv)
    jax.config.update('jax_num_cpu_devices', args.devices)
    size = args.size or ('tiny' if _on_cpu(args.platform) else 'size12m')
    options = ['--configs', size, '--jax.platform', args.platform]
    options += ['--jax.cache', args.cache, *flags]
    bench = Bench(size, args.seconds, args.devices, options)
    bench.start(reports=args.only is None)
    if args.only != 'policy':
        bench.train()
    if args.only != 'train':
        bench.policy()


class Bench:
    """One agent of the given size, and random data for it."""

    def __init__(self, size: str, seconds: float, devices: int, options: list[str]):
        self.size, self.seconds, self.devices = size, seconds, devices
        config = config_lib.resolve(options)[0]
        groups = devices // config.jax.fsdp
        self.config = config.update({'jax.data': groups})
        self.obs_space, self.act_space = _spaces(size)
        begin = time.perf_counter()
        self.agent = dreamerv3.Agent(self.obs_space, self.act_space, self.config)
        jax.block_until_ready(self.agent.params)
        self.construct = time.perf_counter() - begin
        self.rng = np.random.default_rng(0)

    def say(self, figure: str, **values: Any) -> None:
        line = {'bench': 'learner', 'figure': figure, 'size': self.size, **values}
        line |= {'device': jax.devices()[0].device_kind, 'devices': self.devices}
        if self.devices > 1:
            groups = self.config.jax
            line |= {'data': groups.data, 'fsdp': groups.fsdp}
            line |= {'virtual': jax.default_backend() == 'cpu'}
        print(json.dumps(line), flush=True)

    def start(self, reports: bool) -> None:
        """Time until the first update, with everything compiled at once."""
        config, agent = self.config, self.agent
        begin = time.perf_counter()
        agent.prepare(config.batch_size, config.batch_length, config.report_length)
        actor = threading.Thread(target=self._act, args=(16,))
        actor.start()
        carry = agent.init_train(config.batch_size)
        carry, *_ = agent.train(carry, self.batch(config.batch_length))
        jax.block_until_ready(carry)
        first = time.perf_counter() - begin
        actor.join()
        if reports:
            self._report()
        self.say(
            'start',
            construct_s=round(self.construct, 1),
            first_update_s=round(first, 1),
            everything_s=round(time.perf_counter() - begin, 1),
            compiled={x.program: round(x.seconds, 1) for x in agent.compiled},
            cached=sum(x.cached for x in agent.compiled),
            parameters=sum(x.size for x in jax.tree.leaves(agent.params)),
            jax=jax.__version__,
        )

    def train(self) -> None:
        config, agent = self.config, self.agent
        carry = agent.init_train(config.batch_size)
        source = [self.batch(config.batch_length) for _ in range(3)]

        def batches() -> Iterator[Any]:
            while True:
                yield from source

        stream = Prefetch(agent.stream(batches()))

        def step() -> None:
            nonlocal carry
            carry, *_ = agent.train(carry, next(stream))

        whole = _rate(step, lambda: jax.block_until_ready(carry), self.seconds)
        device = self._device_rate(carry, source[0])
        flops = self._flops(carry, source[0])
        bar, goal = BARS.get(self.size, (None, None))
        stats = jax.devices()[0].memory_stats() or {}
        self.say(
            'train',
            train_steps=round(whole, 2),
            device_steps=round(device, 2),
            device_busy=round(min(1, whole / device), 3),
            flops=flops,
            tflops_per_s=round(flops * device / 1e12, 2),
            peak_gb=round(stats.get('peak_bytes_in_use', 0) / 1e9, 2),
            bar=bar,
            goal=goal,
        )

    def policy(self) -> None:
        """Latency of a call, alone and beside a learner that never rests."""
        for rows in ROWS:
            self._policy(rows, 'idle')
        stop = threading.Event()
        learner = threading.Thread(target=self._learn_until, args=(stop,))
        learner.start()
        try:
            for rows in ROWS:
                self._policy(rows, 'training')
        finally:
            stop.set()
            learner.join()

    def batch(self, length: int) -> dict[str, np.ndarray]:
        """As replay serves it; the latents are those of the context."""
        config, rng = self.config, self.rng
        shapes = self.agent.model.batch_shapes(config.batch_size, length)
        batch = {k: np.zeros(x.shape, x.dtype) for k, x in shapes.items()}
        batch |= _random(rng, self.obs_space, batch['is_first'].shape)
        batch['action'] = rng.integers(0, ACTIONS, batch['action'].shape, np.int32)
        batch['stepid'] = np.zeros((*batch['is_first'].shape, 20), np.uint8)
        return batch

    def _device_rate(self, carry: Any, batch: Any) -> float:
        """Calls the program itself: nothing moves and no call waits."""
        agent = self.agent
        batch = next(iter(agent.stream(iter([batch]))))
        results: list[Any] = []

        def step() -> None:
            results[:] = agent.launch(carry, batch)

        return _rate(step, lambda: jax.block_until_ready(results[0]), self.seconds)

    def _flops(self, carry: Any, batch: Any) -> int:
        # Those of the plain loops: products in kernels of our own cannot be seen.
        model = copy.copy(self.agent.model)
        model.loops = None
        state = jax.eval_shape(lambda: model.pack(model.init(jax.random.key(0))))
        weights = jax.eval_shape(model.weights, state)
        batch = {k: batch[k] for k in model.batch_keys}
        key = jax.random.key(0)
        return count_flops(model.train, state, weights, carry, batch, key)

    def _act(self, rows: int) -> Any:
        table = self.agent.init_table(1 + rows)
        obs = _random(self.rng, self.obs_space, (rows,))
        return self.agent.policy_rows(table, np.arange(1, 1 + rows), obs)[0]

    def _report(self) -> None:
        config = self.config
        carry = self.agent.init_report(config.batch_size)
        self.agent.report(carry, self.batch(config.report_length))

    def _policy(self, rows: int, learner: str) -> None:
        table, index = self._act(rows), np.arange(1, 1 + rows)
        obs = _random(self.rng, self.obs_space, (rows,))

        def call() -> None:
            nonlocal table
            table, *_ = self.agent.policy_rows(table, index, obs)

        times = sorted(_times(call, self.seconds))
        self.say(
            'policy',
            rows=rows,
            learner=learner,
            calls=round(len(times) / sum(times), 1),
            p50_ms=round(1000 * statistics.median(times), 3),
            p99_ms=round(1000 * times[int(0.99 * len(times))], 3),
        )

    def _learn_until(self, stop: threading.Event) -> None:
        carry = self.agent.init_train(self.config.batch_size)
        batch = self.batch(self.config.batch_length)
        while not stop.is_set():
            carry, *_ = self.agent.train(carry, batch)


def _rate(call: Callable[[], Any], wait: Callable[[], Any], seconds: float) -> float:
    """Calls per second, over about so many seconds."""
    for _ in range(WARMUP):
        call()
    wait()
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        call()
        count += 1
    wait()
    return count / (time.perf_counter() - begin)


def _times(call: Callable[[], Any], seconds: float) -> list[float]:
    for _ in range(WARMUP):
        call()
    times: list[float] = []
    while sum(times) < seconds:
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return times


def _spaces(size: str) -> tuple[dict[str, Any], dict[str, Any]]:
    space = elements.Space
    side = 16 if size == 'tiny' else 64
    obs = {
        'reward': space(np.float32),
        **{k: space(bool) for k in ('is_first', 'is_last', 'is_terminal')},
    }
    if size == 'size1m':
        obs['vector'] = space(np.float32, VECTOR)
    else:
        obs['image'] = space(np.uint8, (side, side, 3))
    return obs, {'action': space(np.int32, (), 0, ACTIONS)}


def _random(rng: Any, spaces: dict[str, Any], lead: tuple[int, ...]) -> dict[str, Any]:
    values = {}
    for name, space in spaces.items():
        shape = (*lead, *space.shape)
        if space.dtype == bool:
            values[name] = rng.random(shape) < 0.02
        elif space.dtype == np.uint8:
            values[name] = rng.integers(0, 256, shape, np.uint8)
        else:
            values[name] = rng.standard_normal(shape).astype(np.float32)
    return values


def _on_cpu(platform: str) -> bool:
    return platform == 'cpu' or jax.default_backend() == 'cpu'


if __name__ == '__main__':
    main()
