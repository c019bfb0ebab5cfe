"""Pending: what an update left on the device, for the next call to fetch."""

from typing import Any, NamedTuple

import jax
import numpy as np

from embodied.core.errors import NonFiniteError

from .tree import Packer

__all__ = ['Pending']


class Pending(NamedTuple):
    """Arrays on the device or, after a checkpoint was loaded, on the host."""

    update: int
    replay: dict[str, Any]
    losses: Any  # packed, as are the metrics
    metrics: Any
    answers: Any = None  # what the replicas agreed on

    @property
    def ready(self) -> bool:
        """Whether the update is over."""
        # Arrays have it, but their type does not say so.
        return getattr(self.losses, 'is_ready', lambda: True)()

    def check_finite(self, losses: Packer) -> None:
        """Raises NonFiniteError if a loss is not finite; losses: their names."""
        if np.isfinite(np.asarray(self.losses)).all():
            return
        values = losses.unpack(self.losses)
        name = next(name for name, value in values.items() if not np.isfinite(value))
        raise NonFiniteError(
            f"The loss '{name}' became {values[name]} in update {self.update}. The "
            'parameters of before are kept. Check the environment for NaN or huge '
            'observations and rewards, or lower agent.opt.lr.'
        )

    def save(self, losses: Packer) -> dict[str, Any]:
        """Copies on the host; a checkpoint with a bad update could not be resumed."""
        self.check_finite(losses)
        fields = self._replace(answers=None)._asdict()
        return jax.tree.map(lambda x: np.array(x, copy=True), fields)
