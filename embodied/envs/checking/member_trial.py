"""Trial of a vector environment: random play of all members under all checks."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...core.base import Spaces
from ..vector.rows import members_of
from .faults import (
    STEPS_PER_SECOND,
    Check,
    Endless,
    Finding,
    Step,
    StillImages,
    TimeLimits,
)
from .last_rows import LastRows
from .member_faults import MEMBER_CHECKS, MemberFlags, MemberRewards
from .member_play import COMPILED, Call, name_members, play

__all__ = ['trial']

WATCHED = 16  # members whose rows are looked at one by one


def trial(
    env: Any, calls: int, seconds: float, facts: dict[str, str]
) -> Iterator[Finding]:
    """Findings of random play, with other actions for each member."""
    num = members_of(env)
    flags = MemberFlags(env.obs_space, num)
    checks = [flags, *(kind(env.obs_space, num) for kind in MEMBER_CHECKS)]
    rewards = MemberRewards(env.obs_space, num)
    watch = _Watch(env.obs_space, min(num, WATCHED))
    tally = _Tally(num)
    for call in play(env, calls, seconds):
        for part in call.parts:
            for check in (*checks, rewards):
                check.see(part)
        watch.see(call)
        tally.see(call)
    facts.update(tally.facts())
    for check in checks:
        yield from check.findings()
    if flags.mark_beginnings:
        yield from rewards.findings()
    yield from watch.findings()
    yield from tally.findings()


class _Watch:
    """Looks at the rows of the first members with the checks of single environments."""

    def __init__(self, spaces: Spaces, watched: int) -> None:
        self._watched = watched
        kinds: tuple[type[Check], ...] = (TimeLimits, StillImages, Endless)
        self._checks = [[kind(spaces) for kind in kinds] for _ in range(watched)]
        self._last_rows = LastRows(spaces, watched)

    def see(self, call: Call) -> None:
        for part in call.parts:
            chosen = np.flatnonzero(part.members < self._watched)
            copies = {k: np.asarray(v)[chosen] for k, v in part.rows.items()}
            for index, member in enumerate(part.members[chosen].tolist()):
                row = {k: v[index] for k, v in copies.items()}
                step = Step(bool(part.reset[chosen[index]]), row, call.seconds)
                for check in self._checks[member]:
                    check.see(step)
                self._last_rows.see(member, row)

    def findings(self) -> Iterator[Finding]:
        yield from self._last_rows.findings()
        for checks in zip(*self._checks, strict=True):
            found = [list(check.findings()) for check in checks]
            members = np.array([bool(x) for x in found])
            if members.any():
                first = found[int(np.argmax(members))][0]
                who = name_members(members).capitalize()
                yield first._replace(what=f'{who}: {first.what}')


class _Tally:
    """Counts rows, time and episodes."""

    def __init__(self, num: int) -> None:
        self._num = num
        self._seconds: list[float] = []
        self._length = np.zeros(num, np.int64)
        self._score = np.zeros(num)
        self._lengths: list[int] = []
        self._scores: list[float] = []

    def see(self, call: Call) -> None:
        self._seconds.append(call.seconds)
        for part in call.parts:
            first, last = (part.common(x).astype(bool) for x in ('is_first', 'is_last'))
            members = part.members
            length = np.where(first, 0, self._length[members] + 1)
            score = np.where(first, 0, self._score[members])
            score = score + part.common('reward')
            self._length[members], self._score[members] = length, score
            self._lengths += length[last].tolist()
            self._scores += score[last].tolist()

    def facts(self) -> dict[str, str]:
        lengths, scores = self._lengths, self._scores
        episodes = f'none ended; the longest one has {self._length.max()} steps so far'
        if lengths:
            episodes = (
                f'{len(lengths)} of {min(lengths)} to {max(lengths)} steps, scores of '
                f'random play {min(scores):g} to {max(scores):g}'
            )
        return {
            'members': f'{self._num}, which step together',
            'speed': f'{self._rate:.0f} rows/s, {self._rate / self._num:.0f} calls/s',
            'episodes': episodes,
        }

    def findings(self) -> Iterator[Finding]:
        if self._rate < STEPS_PER_SECOND:
            yield Finding(
                'warning',
                f'All {self._num} members together make {self._rate:.2g} steps per '
                f'second.',
                'Use more members, several vector environments in processes of their '
                'own (--run.envs), or a higher train ratio.',
            )

    @property
    def _rate(self) -> float:
        """Rows per second, without the calls that may compile programs."""
        seconds = self._seconds[COMPILED:] or self._seconds
        return self._num * len(seconds) / max(sum(seconds), 1e-9)
