"""Pacing: the whole system around a device that does nothing but take its time.

    python bench/pacing.py                          64 and 16 environments
    python bench/pacing.py --envs 64 --train_ms 6

One JSON line per number of environments: the share of the device's own rate at which
the learner trains, and who waited for whom. Everything but the device is real: roles,
batches of 12.8 MB, latents on their way back, the train ratio. The device computes one
thing after the other, as a GPU does for the programs of one process; the defaults are
the times of an update, a policy call, a launch and a transfer of size12m on an H200.
"""

import argparse
import functools
import json
import queue
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import runtime

ENVS = (64, 16)
TRAIN_RATIO = 32.0
DETER, STOCH = 2048, 32  # numbers of the latents
METRICS = 50  # of each update
BARS = {64: runtime.Bar(0.9, 0.95), 16: runtime.Bar(0.8, 0.95)}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--envs', type=int, nargs='*', default=ENVS)
    parser.add_argument('--per_worker', type=int, default=8)
    parser.add_argument('--seconds', type=float, default=8.0)
    parser.add_argument('--train_ms', type=float, default=14.7)
    parser.add_argument('--policy_ms', type=float, default=0.6)
    parser.add_argument('--launch_ms', type=float, default=5.0)
    parser.add_argument('--transfer_ms', type=float, default=3.0)
    options = parser.parse_args(argv, argparse.Namespace(transport='zmq'))
    times = ('train_ms', 'policy_ms', 'launch_ms', 'transfer_ms')
    make_agent = functools.partial(
        TimedAgent, **{name: getattr(options, name) for name in times}
    )
    for envs in options.envs:
        seen = runtime.run(
            options,
            envs,
            options.per_worker,
            runtime.PlayingEnv,
            train_ratio=TRAIN_RATIO,
            make_agent=make_agent,
        )
        share = seen.updates_per_second * options.train_ms / 1000
        details = {
            'envs': envs,
            'updates_per_second': round(seen.updates_per_second, 1),
            'env_steps_per_second': round(seen.steps_per_second),
            'machine': round(seen.machine, 2),
        }
        figure = runtime.figure('learner_share', share, BARS.get(envs), 3, **details)
        print(json.dumps({'bench': 'pacing', **figure}), flush=True)


class Device(threading.Thread):
    """Takes the given times, one after the other."""

    def __init__(self) -> None:
        super().__init__(name='device', daemon=True)
        self._jobs: queue.SimpleQueue[tuple[float, threading.Event]] = (
            queue.SimpleQueue()
        )
        self.start()

    def run(self) -> None:
        while True:
            seconds, done = self._jobs.get()
            _pass(seconds)
            done.set()

    def launch(self, milliseconds: float) -> threading.Event:
        done = threading.Event()
        self._jobs.put((milliseconds / 1000, done))
        return done


class TimedAgent(runtime.TrivialAgent):
    """Puts out what an agent of size12m does, when the device is done with it."""

    def __init__(
        self,
        folder: runtime.Folder,
        train_ms: float,
        policy_ms: float,
        launch_ms: float,
        transfer_ms: float,
    ):
        super().__init__(folder)
        self._train_ms, self._policy_ms = train_ms, policy_ms
        self._launch, self._transfer = launch_ms / 1000, transfer_ms / 1000
        self._device = Device()
        self._pending: tuple[threading.Event, Any] | None = None

    def policy(self, carry: Any, obs: dict, mode: str = 'train') -> tuple:
        self._device.launch(self._policy_ms).wait()
        rows = len(obs['is_first'])
        acts = {'act_disc': np.zeros(rows, np.int32)}
        return carry, acts, _latents((rows,))

    def train(self, carry: Any, batch: dict) -> tuple:
        _pass(self._launch)
        done = self._device.launch(self._train_ms)
        ids = batch['stepid'][:, runtime.CONTEXT :]
        before, self._pending = self._pending, (done, ids)
        self._counts[-1] += 1
        if before is None:
            return carry, {}, {}
        done, ids = before
        done.wait()
        metrics = {f'metric{i}': 1.0 for i in range(METRICS)}
        return carry, {'replay': {'stepid': ids, **_latents(ids.shape[:2])}}, metrics

    def stream(self, source: Iterator) -> Iterator:
        for batch in source:
            _pass(self._transfer)
            yield batch


def _latents(shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {
        'dyn/deter': np.zeros((*shape, DETER), np.uint16),
        'dyn/stoch': np.zeros((*shape, STOCH), np.uint8),
    }


def _pass(seconds: float) -> None:
    """Takes so long, and no core."""
    threading.Event().wait(seconds)


if __name__ == '__main__':
    main()
