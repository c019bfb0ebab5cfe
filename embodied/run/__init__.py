"""Loops that bring agent, environments, replay and logger together."""

from . import parallel
from .eval_only import eval_only
from .resume import Change, check_resume
from .train import train
from .train_eval import train_eval

__all__ = ['Change', 'check_resume', 'eval_only', 'parallel', 'train', 'train_eval']
