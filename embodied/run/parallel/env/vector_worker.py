"""Vector worker: steps all members of a vector environment with the actor's actions."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from ....core.base import Batch
from ....envs.runtime.stacking import take_members
from ....envs.vector.rows import Final
from ....transport import ClientInterface
from .env_worker import EnvWorker, says_stop, zeros_of

__all__ = ['VectorWorker']


class VectorWorker(EnvWorker):
    """Sends the rows of all members in one message, and waits for their actions.

    Last rows that came beside first ones go ahead in a message of their own, since the
    actor takes one row of an environment at a time. A vector environment may have more
    members than are planned, or than go on with an evaluation: those get zeros as
    actions, and their rows are not sent.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        (info,) = self._group.infos
        self._members = info.members
        self._planned = len(self._envids)
        zeros = zeros_of(info.act_space)
        self._idle = {
            k: np.repeat(np.asarray(v)[None], self._members, 0)
            for k, v in zeros.items()
        }

    def _play(self, actor: ClientInterface, episodes: int) -> bool:
        left = np.full(self._planned, episodes)
        actions = {**self._idle, 'reset': np.ones(self._members, bool)}
        while True:
            obs, final = self._step(actions)
            if final is not None and not self._end_episodes(actor, final, left):
                return False
            sent = np.flatnonzero(left)
            if not len(sent):
                return True
            left[sent] -= obs['is_last'][sent]
            answer = self._ask_rows(actor, sent, {k: v[sent] for k, v in obs.items()})
            if answer is None:
                return False
            if not left.any():
                return True
            actions = {k: v.copy() for k, v in self._idle.items()}
            for key, value in answer['acts'].items():
                actions[key][sent] = value
            actions['reset'] = obs['is_last'].copy()
            actions['reset'][sent] = answer['reset']

    def _step(self, actions: Batch) -> tuple[Batch, Final | None]:
        self._group.send(0, actions)
        ((_, obs),) = self._group.receive(1)
        return take_members(obs, self._obs_space, self._members)

    def _end_episodes(
        self, actor: ClientInterface, final: Final, left: np.ndarray
    ) -> bool:
        """Sends last rows and counts these episodes; False if the actor stops."""
        members, rows = final
        played = members < self._planned
        played[played] = left[members[played]] != 0
        if not played.any():
            return True
        sent = members[played]
        left[sent] -= 1
        rows = {k: v[played] for k, v in rows.items()}
        return self._ask_rows(actor, sent, rows) is not None

    def _ask_rows(
        self, actor: ClientInterface, positions: np.ndarray, obs: Batch
    ) -> dict[str, Any] | None:
        """The answer to rows [n, ...] of these members; None if the actor stops."""
        futures = [
            self._call(actor, positions[part], {k: v[part] for k, v in obs.items()})
            for part in _parts(len(positions), self._limit)
        ]
        answers = []
        for future in futures:
            answers.append(self._answer_of(future))
            if says_stop(future):  # The other answers may never come.
                return None
        self._health.advance()
        acts = {
            key: np.concatenate([answer['acts'][key] for answer in answers])
            for key in answers[0]['acts']
        }
        reset = np.concatenate([answer['reset'] for answer in answers])
        return {'acts': acts, 'reset': reset}


def _parts(rows: int, limit: int) -> Iterator[slice]:
    """So many rows in messages of at most `limit` rows."""
    return (slice(i, i + limit) for i in range(0, rows, limit))
