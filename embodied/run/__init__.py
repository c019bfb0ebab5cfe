"""Loops that bring agent, environments, replay and logger together.

Names are imported on first use, so that a role of a distributed run does not load the
loops of one process.
"""

from typing import TYPE_CHECKING

from ..core.lazy import importer

if TYPE_CHECKING:
    from . import parallel
    from .shared.resume import Change, check_resume
    from .single.eval_only import eval_only
    from .single.offline import offline
    from .single.train import train
    from .single.train_eval import train_eval

_HOMES = {
    'Change': 'shared.resume',
    'check_resume': 'shared.resume',
    'eval_only': 'single.eval_only',
    'offline': 'single.offline',
    'train': 'single.train',
    'train_eval': 'single.train_eval',
}

__all__ = [
    'Change',
    'check_resume',
    'eval_only',
    'offline',
    'parallel',
    'train',
    'train_eval',
]

__getattr__ = importer(__name__, _HOMES, ('parallel',))


def __dir__() -> list[str]:
    return sorted(__all__)
