"""Predictions with a loss: distributions over what networks put out.

Each holds float32 values of shape [..., event]; `loss(target)` is a negative
log-likelihood or squared error summed over the event, `pred()` the best guess.
Sampling takes its noise as an argument, so that callers can draw it all at once.
"""

from .categorical import Categorical, first_largest
from .continuous import Bernoulli, Normal, SquaredError, SymlogSquaredError
from .transforms import symexp, symlog
from .twohot import SymlogTwoHot, TwoHot, symexp_bins, symlog_bins

__all__ = [
    'Bernoulli',
    'Categorical',
    'Normal',
    'SquaredError',
    'SymlogSquaredError',
    'SymlogTwoHot',
    'TwoHot',
    'first_largest',
    'symexp',
    'symexp_bins',
    'symlog',
    'symlog_bins',
]
