"""Options beyond the published agent, off by default, as classes around the agent's.

Each is a subclass of Dreamer that calls `super()` for all that it does not change.
`model_class` puts them in front of Dreamer or of an own agent; nothing here is imported
by runs without them.
"""

from .barlow import Barlow
from .harmony import Harmony

__all__ = ['Barlow', 'Harmony']
