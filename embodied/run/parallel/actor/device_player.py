"""Device player: environments that live on the agent's device, played by the actor."""

import os
import time
from typing import Any

import numpy as np

from ....core import base
from ....core.errors import ConfigError
from ..context import RoleContext
from ..run_state import RunState
from ..supervision.health import COMPILING
from .actor import Actor, Rolled

__all__ = ['DevicePlayer']

WORKER_ID_BYTES = 16


class DevicePlayer:
    """Plays `run.device_steps` steps of all environments at a time.

    While one rollout is stored, the next one is computed with the weights of its
    beginning. Replay holds the actor up as it does with environment workers, so the
    train ratio is met within the steps of one rollout.
    """

    def __init__(self, agent: Any, actor: Actor, context: RoleContext):
        self._agent, self._actor = agent, actor
        self._health = context.health
        settings = context.settings
        rollout = getattr(agent, 'rollout', None)
        if rollout is None:
            raise ConfigError(
                f'run.device_steps={settings.device_steps} needs an agent that plays '
                f'environments on its device, and {type(agent).__name__} was given '
                f'none (`play_on_device`). Leave it at 1.'
            )
        count = rollout.num
        self._steps = rollout.steps
        self._envids = np.arange(count, dtype=np.int32)
        worker_id = np.frombuffer(os.urandom(WORKER_ID_BYTES), np.uint8)
        self._worker_ids = np.tile(worker_id, (count, 1))
        self._serial = 0

    def run(self, run_state: RunState) -> None:
        """Plays until the run is stopped."""
        try:
            with self._health.busy(COMPILING):
                rolled = self._agent.roll()
            while not run_state.stopped:
                trans, seconds = self._fetch(rolled)
                rolled = self._agent.roll()
                self._store(trans, seconds)
        finally:
            self._actor.leave(self._worker_ids[0])

    def _fetch(self, rolled: Any) -> tuple[base.Batch, float]:
        """Transitions [K, N, ...], and seconds that the actor has waited for them."""
        begin = time.perf_counter()
        with self._health.busy():
            trans = rolled.fetch()
        self._health.advance()
        return trans, time.perf_counter() - begin

    def _store(self, trans: base.Batch, seconds: float) -> None:
        serials = self._serial + np.arange(self._steps, dtype=np.int64)
        self._serial += self._steps
        origin = {'envid': self._envids, 'worker_id': self._worker_ids}
        self._actor.record_rollout(Rolled(trans, origin, serials, seconds))
