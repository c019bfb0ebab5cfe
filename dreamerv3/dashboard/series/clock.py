"""Clock of a run: seconds of training at a time of day.

A run counts the seconds of all its sessions in `run/seconds`; the pauses between two
sessions do not count. Lines of scores.jsonl have a time of day only.
"""

import numpy as np

__all__ = ['SECONDS', 'Clock']

SECONDS = 'run/seconds'  # metric
JITTER = 30.0  # seconds by which a metric may be older than the line that it is in


class Clock:
    """Learns the sessions of a run from the lines that have `run/seconds`."""

    def __init__(self) -> None:
        # Times of day: first and last line, and when training would have begun if it
        # had never paused.
        self._begins: list[float] = []
        self._ends: list[float] = []
        self._zeros: list[float] = []

    def learn(self, times: np.ndarray, seconds: np.ndarray) -> None:
        """Takes lines in the order of the file, behind those it knows: each [N]."""
        for time, zero in zip(times.tolist(), (times - seconds).tolist(), strict=True):
            if self._zeros and abs(zero - self._zeros[-1]) <= JITTER:
                self._ends[-1] = time
            else:
                self._begins.append(time)
                self._ends.append(time)
                self._zeros.append(zero)

    def copy(self) -> 'Clock':
        """One that learns without this one."""
        other = Clock()
        other._begins, other._ends = list(self._begins), list(self._ends)
        other._zeros = list(self._zeros)
        return other

    def seconds(self, times: np.ndarray, start: float) -> np.ndarray:
        """Seconds of training at these times of day [N].

        start: when the run began, for a run that does not count its seconds.
        """
        if not self._zeros:
            return np.maximum(times - start, 0)
        begins, ends, zeros = map(np.array, (self._begins, self._ends, self._zeros))
        session = np.maximum(np.searchsorted(begins, times, side='right') - 1, 0)
        # Behind its last line a session has ended, unless it is the last one.
        ends[-1] = np.inf
        elapsed = np.minimum(times, ends[session]) - zeros[session]
        after = np.minimum(session + 1, len(zeros) - 1)
        resumed = np.where(times > ends[session], times - zeros[after], 0)
        return np.maximum(np.maximum(elapsed, resumed), 0)
