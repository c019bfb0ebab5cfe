"""Agreement: what the replicas of a run decide together, without waiting for it.

Every update is one computation of all replicas. Their votes travel with it, and all of
them know the result one update later: they act on it after the same number of updates.
"""

import numpy as np

__all__ = ['GO_ON', 'Agreement']

GO_ON = 0  # the question that decides whether an update counts
QUESTIONS = 8  # at most; votes are an array of this size


class Agreement:
    """Answers questions with yes if all replicas vote for it.

    The agent sends `votes` with each update and calls `learn` with what came out of the
    update before. If a replica votes against going on, neither of these two changes
    anything, in any replica, and there must be no further one.
    """

    def __init__(self, replica: int):
        self.leads = replica == 0  # this replica does what one does for all
        self.votes = np.zeros(QUESTIONS, np.int32)
        self.votes[GO_ON] = 1
        self._answers = self.votes.copy()
        self._questions = 1

    @property
    def over(self) -> bool:
        """Whether a replica has voted against going on."""
        return not self._answers[GO_ON]

    def stop(self) -> None:
        """Votes against going on; updates must be made until it is `over`."""
        self.votes[GO_ON] = 0

    def ask(self) -> int:
        """A new question, in the same order in all replicas."""
        assert self._questions < QUESTIONS
        self._questions += 1
        return self._questions - 1

    def vote(self, question: int, value: bool) -> None:
        self.votes[question] = value

    def answer(self, question: int) -> bool:
        """What the votes of two calls of `train` ago came to."""
        return bool(self._answers[question])

    def learn(self, answers: np.ndarray) -> None:
        self._answers = answers
