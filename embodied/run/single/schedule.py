"""Schedule: at which steps evaluations are due."""

__all__ = ['Schedule']


class Schedule:
    """Due at step 0 and then once in each period of `every` steps."""

    def __init__(self, every: int):
        self._every = every
        self._next = 0

    def due(self, step: int) -> bool:
        return step >= self._next

    def done(self, step: int) -> None:
        self._next = (step // self._every + 1) * self._every

    def save(self) -> int:
        return self._next

    def load(self, data: int) -> None:
        self._next = data
