"""Fused loops: whether the loops over time run as kernels of our own.

`jax.kernels` is off, on or auto. Kernels exist for some sizes, in bfloat16, on one GPU
of at least Hopper's generation. `on` refuses all else, so that what is measured is what
was asked for; `auto` takes the plain loops then, and says why.
"""

import logging
from collections.abc import Callable
from typing import Any

import elements
import jax

from embodied.core.errors import ConfigError
from embodied.jax import ptx
from embodied.jax.devices import Devices

from ...actions import Actions
from ..heads import Policy
from ..inputs import flat_size, num_classes
from ..rssm import RSSM
from .cuda_launch import Launch, launch
from .imagine import ROOM, TILE, ImagineLoop, ImagineShape
from .observe import ROWS, ObserveLoops, ObserveShape
from .selftest import disagreement

__all__ = ['FusedLoops', 'choose_loops']

log = logging.getLogger(__name__)

MODES = ('auto', 'on', 'off')
CAPABILITY = 9.0  # that of the first GPUs with clusters of blocks
SIZES = {'deter': 512, 'hidden': 64, 'stoch': 32, 'classes': 4, 'blocks': 8}
POLICY = (3, 64)  # its layers and their width


class FusedLoops:
    """Loops for the sizes of a model; config: its part of the options, agent."""

    def __init__(
        self, config: elements.Config, actions: Actions, launch: Launch = launch
    ):
        self._config, self._actions, self._launch = config, actions, launch
        dyn = config.dyn
        self._sizes = {name: dyn[name] for name in SIZES if name != 'blocks'}
        self._sizes['unimix'] = dyn.unimix

    def observe(self, batch: int, steps: int) -> ObserveLoops | None:
        """Kernels for the loops of RSSM.observe; None where they do not fit or gain."""
        if batch % ROWS or steps < 2:
            return None
        shape = ObserveShape(**self._sizes, steps=steps, batch=batch)
        return ObserveLoops(shape, self._launch)

    def imagine(self, rows: int, steps: int) -> ImagineLoop | None:
        """Kernel for the loop of behavior.imagine; None for other policies."""
        policy = self._config.policy
        if rows % TILE or (policy.layers, policy.units) != POLICY:
            return None
        if len(self._actions.spaces) > 1:
            return None
        ((key, space),) = self._actions.spaces.items()
        width = num_classes(key, space) if space.discrete else flat_size(key, space)
        if width > ROOM or (space.discrete and space.shape):
            return None
        shape = ImagineShape(
            **self._sizes,
            steps=steps,
            rows=rows,
            discrete=space.discrete,
            width=width,
            policy_unimix=policy.unimix,
            minstd=policy.minstd,
            maxstd=policy.maxstd,
        )
        return ImagineLoop(shape, key, space, self._launch)

    def obstacle(self, batch: int, steps: int) -> str:
        """Why these kernels cannot be trusted here, as a sentence, or ''."""
        observe = self.observe(batch, steps)
        if observe is None:
            return f'they need a multiple of {ROWS} rows, and batch_size={batch}.'
        imagine = self.imagine(batch * steps, self._config.imag_length)
        try:
            wrong = disagreement(observe, imagine, self._config, self._actions)
        except ptx.CompileError as error:
            return str(error)
        return f'they differ from the plain loops here: {wrong}.' if wrong else ''


def choose_loops(
    config: elements.Config,
    actions: Actions,
    devices: Devices,
    nets: Callable[[], Any] | None = None,
) -> FusedLoops | None:
    """None is the plain loops. config: the whole one, resolved. nets: of the agent, as
    shapes; None are those of DreamerV3."""
    mode = config.jax.kernels
    if mode not in MODES:
        raise ConfigError(
            f'jax.kernels={mode} is unknown. Use one of: {", ".join(MODES)}.'
        )
    if mode == 'off':
        return None
    loops = FusedLoops(config.agent, actions)
    no_use = (nets and _changed(nets())) or _no_use(config, devices)
    obstacle = no_use or loops.obstacle(config.batch_size, config.batch_length)
    if not obstacle:
        return loops
    if mode == 'on':
        raise ConfigError(
            f'jax.kernels=on is not possible: {obstacle} Set jax.kernels=auto, which '
            'takes the plain loops then.'
        )
    # A warning only where kernels should work and do not.
    level = logging.INFO if no_use else logging.WARNING
    log.log(level, 'Plain loops instead of kernels: %s', obstacle)
    return None


def _changed(nets: Any) -> str:
    """What these kernels do not compute, as a sentence, or ''."""
    parts = (('dyn', nets.dyn, RSSM), ('policy', nets.policy, Policy))
    own = [
        f'{k} is a {type(x).__name__}' for k, x, kind in parts if type(x) is not kind
    ]
    if not own:
        return ''
    return f'they compute the networks of DreamerV3, and here {", ".join(own)}.'


def _no_use(config: elements.Config, devices: Devices) -> str:
    """Why there are no kernels for this machine or model, as a sentence, or ''."""
    dyn = config.agent.dyn
    sizes = {name: dyn[name] for name in SIZES}
    if jax.default_backend() != 'gpu':
        return f'they need a GPU, and the platform is {jax.default_backend()}.'
    if (found := _capability()) < CAPABILITY:
        return f'they need compute capability {CAPABILITY}, and this GPU has {found}.'
    if not devices.alone:
        return 'they run on one device, and this run trains on several.'
    if config.jax.compute_dtype != 'bfloat16':
        return f'they need bfloat16, and jax.compute_dtype={config.jax.compute_dtype}.'
    if sizes != SIZES:
        return f'they exist for agent.dyn {_text(SIZES)}, and it is {_text(sizes)}.'
    return ''


def _capability() -> float:
    return float(jax.devices()[0].compute_capability)


def _text(sizes: dict[str, Any]) -> str:
    return ', '.join(f'{name} {value}' for name, value in sizes.items())
