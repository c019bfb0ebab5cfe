"""Loops that bring agent, environments, replay and logger together."""

from . import parallel
from .shared.resume import Change, check_resume
from .single.eval_only import eval_only
from .single.train import train
from .single.train_eval import train_eval

__all__ = ['Change', 'check_resume', 'eval_only', 'parallel', 'train', 'train_eval']
