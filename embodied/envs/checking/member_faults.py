"""Faults of vector environments: each class looks at the rows of all members.

A class has `see(part)` and `findings()`, as those of `faults`.
"""

from collections.abc import Iterator

import numpy as np

from ...core import manual
from ...core.base import Spaces
from .faults import Finding, Keys, Step, Values
from .member_play import Part, name_members

__all__ = ['MEMBER_CHECKS', 'WITH_FINAL', 'MemberFlags', 'MemberRewards']

WITH_FINAL = (
    'A simulator that resets inside its step returns the last rows of ended episodes '
    'under `final` and the first rows of the next ones among the rows of all members: '
    f'{manual.page("your_environment.md#vector-environments")}.'
)


class MemberKeys:
    """Keys that are missing or not declared, also of last rows."""

    def __init__(self, spaces: Spaces, num: int) -> None:
        self._checks = {'Observation': Keys(spaces), 'Last observation': Keys(spaces)}

    def see(self, part: Part) -> None:
        self._checks[part.name].see(Step(False, part.rows, 0.0))

    def findings(self) -> Iterator[Finding]:
        yield from self._checks['Observation'].findings()
        for finding in self._checks['Last observation'].findings():
            yield finding._replace(what=f"Under 'final': {finding.what}")


class MemberValues(Values):
    """Values of members with the wrong dtype or shape, outside of bounds, or NaN."""

    def __init__(self, spaces: Spaces, num: int) -> None:
        super().__init__(spaces)

    def see(self, part: Part) -> None:  # type: ignore[override]
        count = len(part.members)
        for key, check in self._checks.items():
            if key not in part.rows or key in self._found:
                continue
            rows = part.rows[key]
            if check.fits(rows, count):
                continue
            wrong = next(i for i in range(count) if not check.fits(rows[i]))
            name = f'{part.name} {key!r} of member {part.members[wrong]}'
            message = str(check.error(name, rows[wrong]))
            fix = self._fix(key, rows[wrong])
            self._found[key] = Finding('error', message, fix)


class MemberFlags:
    """is_first, is_last and is_terminal that contradict what happens."""

    def __init__(self, spaces: Spaces, num: int) -> None:
        self._over = np.ones(num, bool)
        self._missed = np.zeros(num, bool)  # is_first was due in the row before
        names = ('late', 'missing', 'lost', 'joined', 'stillborn', 'terminal')
        self._found = {name: np.zeros(num, bool) for name in names}
        self._all_begin = True  # whenever one of them is reset

    def see(self, part: Part) -> None:
        first, last, terminal = (
            part.common(key).astype(bool)
            for key in ('is_first', 'is_last', 'is_terminal')
        )
        members = part.members
        due = part.reset | self._over[members]
        missed = self._missed[members]
        inside = first & ~due
        lost = inside & ~missed & ~last
        if lost.any():
            self._all_begin &= bool(first.all() and part.reset.any())
        for name, flags in {
            'missing': due & ~first,
            'late': inside & missed,
            'lost': lost,
            'joined': inside & last,
            'stillborn': due & first & last,
            'terminal': terminal & ~last,
        }.items():
            self._found[name][members] |= flags
        self._missed[members] = due & ~first
        self._over[members] = last

    @property
    def mark_beginnings(self) -> bool:
        """Whether is_first was true wherever it had to be."""
        return not self._found['missing'].any()

    def findings(self) -> Iterator[Finding]:
        who = {k: name_members(v) for k, v in self._found.items() if v.any()}
        yield from _first_findings(who)
        yield from _lost_findings(who, self._all_begin)
        if 'stillborn' in who:
            yield Finding(
                'error',
                f'Episodes of {who["stillborn"]} end with their first rows.',
                'Begin with an observation that an action can follow.',
            )
        if 'terminal' in who:
            yield Finding(
                'error',
                f'is_terminal is True in rows of {who["terminal"]} that are not the '
                f'last ones.',
                'Set is_last, too, or is_terminal only at the end.',
            )


def _first_findings(who: dict[str, str]) -> Iterator[Finding]:
    """Resets that no first row follows."""
    if 'late' in who:
        yield Finding(
            'error',
            f'is_first comes one row late for {who["late"]}: expected True in the row '
            f'that a reset leads to, got False there and True in the next one.',
            'Set is_first in the row with the first observation of an episode.',
        )
    elif 'missing' in who:
        yield Finding(
            'error',
            f'After a reset, or after is_last, rows of {who["missing"]} have '
            f'is_first=False, expected True.',
            'Begin an episode of each member whose `reset` is True, and say so.',
        )


def _lost_findings(who: dict[str, str], all_begin: bool) -> Iterator[Finding]:
    """First rows in mid-episode."""
    if 'lost' in who and all_begin:
        yield Finding(
            'error',
            f'A reset of some members begins episodes of all: {who["lost"]} got '
            f'is_first=True in mid-episode, expected False.',
            'Begin episodes of those members alone whose `reset` is True.',
        )
    elif 'lost' in who:
        yield Finding(
            'error',
            f'Last observations are lost: episodes of {who["lost"]} begin '
            f'(is_first=True) after a row with is_last=False, expected True.',
            WITH_FINAL,
        )
    if 'joined' in who:
        yield Finding(
            'error',
            f'Rows of {who["joined"]} have is_last=True and is_first=True: expected a '
            f'last row and a first one, got one row for both.',
            WITH_FINAL,
        )


class MemberRewards:
    """Rewards before any action was taken, above all those that come one row late."""

    def __init__(self, spaces: Spaces, num: int) -> None:
        self._ended = np.zeros(num, bool)
        self._last = np.zeros(num, np.float64)  # rewards of the last rows
        self._at_start = False
        self._wrong = np.zeros(num, bool)
        self._example: tuple[float, float] | None = None

    def see(self, part: Part) -> None:
        reward = part.common('reward').astype(np.float64)
        first, last = (part.common(x).astype(bool) for x in ('is_first', 'is_last'))
        members = part.members
        wrong = first & (reward != 0)
        if wrong.any():
            self._wrong[members] |= wrong
            self._at_start |= bool((wrong & ~self._ended[members]).any())
            at = int(np.argmax(wrong))
            example = (float(reward[at]), float(self._last[members[at]]))
            self._example = self._example or example
        self._last[members] = np.where(last, reward, self._last[members])
        self._ended[members] |= last

    def findings(self) -> Iterator[Finding]:
        if self._example is None:
            return
        first, last = self._example
        who = name_members(self._wrong)
        if self._at_start:
            yield Finding(
                'error',
                f'First rows of episodes of {who} have rewards: expected 0, got '
                f'{first:g}.',
                'A reward belongs to the row that an action has led to: return 0 '
                'after a reset.',
            )
        else:
            yield Finding(
                'error',
                f'Rewards of {who} come one row late at a reset: expected 0 in the '
                f'first row of an episode, got {first:g} there and {last:g} in the '
                f'last row before it.',
                'Return the reward of an action in the row that it leads to, so that '
                'the last one of an episode is in the row with is_last.',
            )


MEMBER_CHECKS = (MemberKeys, MemberValues)  # that need no other one
