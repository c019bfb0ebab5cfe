"""Faults of environments: one small class per kind looks at every step of a trial.

A class has `see(step)` and `findings()`. Values are seen as agents would get them, that
is after `UnifyDtypes`, so that what the standard wrapping corrects is no fault.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from ...core.base import Spaces
from ...core.step_keys import is_log
from ..conversion import is_channels_first
from ..spaces import Checker, describe, is_image

__all__ = [
    'CHECKS',
    'Finding',
    'Severity',
    'Speed',
    'Step',
    'static_findings',
    'unrepeatable',
]

Severity = Literal['error', 'warning']

SIDE_FACTOR = 16  # four stages halve images
SIDES = (48, 256)  # smallest and largest side that four stages can take
LIMIT_LENGTH = 128  # terminal ends at one fixed length from here on look like limits
LIMIT_EPISODES = 2
THIN = 16  # pixels; no image is so narrow and has more channels than that
LONG = 5000  # steps without an end that are worth a word
STEPS_PER_SECOND = 5.0
SLOW_SECONDS = 0.2
SLOW_FACTOR = 10  # times the median
SLOW_SHARE = 0.05
CONVERT = '--env.own.convert True (env.gym.convert)'
BOUND = '--env.own.bound 1.0 (env.gym.bound)'
STILL_STEPS = 50  # equal images in a row that look like a broken camera


class Finding(NamedTuple):
    severity: Severity
    what: str
    fix: str


class Step(NamedTuple):
    """One call of the environment: reset asked for, result, seconds that it took."""

    reset: bool
    obs: Mapping[str, Any]
    seconds: float


class Check(Protocol):
    def __init__(self, obs_space: Spaces) -> None: ...

    def see(self, step: Step) -> None: ...

    def findings(self) -> Iterator[Finding]: ...


class Keys:
    """Keys that are missing or not declared."""

    def __init__(self, obs_space: Spaces) -> None:
        self._declared = set(obs_space)
        self._missing: set[str] = set()
        self._extra: set[str] = set()

    def see(self, step: Step) -> None:
        self._missing |= self._declared - step.obs.keys()
        self._extra |= step.obs.keys() - self._declared

    def findings(self) -> Iterator[Finding]:
        if self._missing or self._extra:
            yield Finding(
                'error',
                f'Observations lack the keys {sorted(self._missing)} and have the '
                f'undeclared keys {sorted(self._extra)}.',
                'Return exactly the keys of the observation space in every step, also '
                'after a reset.',
            )


class Values:
    """Values of the wrong dtype or shape, outside of bounds, NaN or infinite."""

    def __init__(self, obs_space: Spaces) -> None:
        self._spaces = obs_space
        self._checks = {key: Checker(space) for key, space in obs_space.items()}
        self._found: dict[str, Finding] = {}

    def see(self, step: Step) -> None:
        for key, check in self._checks.items():
            if key in step.obs and key not in self._found:
                value = step.obs[key]
                if not check.fits(value):
                    message = str(check.error(f'Observation {key!r}', value))
                    self._found[key] = Finding('error', message, self._fix(key, value))

    def _fix(self, key: str, value: Any) -> str:
        array, space = np.asarray(value), self._spaces[key]
        if array.dtype.kind == 'f' and not np.isfinite(array).all():
            return (
                'Find out where it comes from, often a division or a simulator that '
                'became unstable; one such value would spoil all parameters.'
            )
        if array.shape != space.shape:
            return 'Declare the shape that is returned; it may not change.'
        if not np.can_cast(array.dtype, space.dtype, 'same_kind'):
            if is_image(space):
                return 'Return images as uint8 from 0 to 255.'
            return f'Return {space.dtype.name}, or declare {array.dtype.name}.'
        return 'Declare the bounds that the values really have, or clip the values.'

    def findings(self) -> Iterator[Finding]:
        yield from self._found.values()


class Flags:
    """is_first, is_last and is_terminal that contradict what happens."""

    def __init__(self, obs_space: Spaces) -> None:
        self._not_first = self._first_inside = False
        self._stillborn = self._terminal_inside = False
        self._over = True

    def see(self, step: Step) -> None:
        first, last = bool(step.obs['is_first']), bool(step.obs['is_last'])
        beginning = step.reset or self._over
        self._not_first |= beginning and not first
        self._first_inside |= first and not beginning
        self._stillborn |= first and last
        self._terminal_inside |= bool(step.obs['is_terminal']) and not last
        self._over = last

    def findings(self) -> Iterator[Finding]:
        if self._not_first:
            yield Finding(
                'error',
                'The observation after a reset has is_first=False.',
                'Start an episode when action["reset"] is True, and say so.',
            )
        if self._first_inside:
            yield Finding(
                'error',
                'is_first is True in the middle of an episode.',
                'End the episode before with is_last=True; only then begin the next.',
            )
        if self._stillborn:
            yield Finding(
                'error',
                'An episode ends with its first observation.',
                'Begin with an observation that an action can follow.',
            )
        if self._terminal_inside:
            yield Finding(
                'error',
                'is_terminal is True in a step that is not the last.',
                'Set is_last, too, or is_terminal only at the end.',
            )


class TimeLimits:
    """Ends that all come at the same number of steps and claim to be terminal."""

    def __init__(self, obs_space: Spaces) -> None:
        self._count = 0
        self._ends: list[tuple[int, bool]] = []

    def see(self, step: Step) -> None:
        self._count = 0 if step.obs['is_first'] else self._count + 1
        if step.obs['is_last']:
            self._ends.append((self._count, bool(step.obs['is_terminal'])))

    def findings(self) -> Iterator[Finding]:
        lengths = {length for length, _ in self._ends}
        terminal = all(terminal for _, terminal in self._ends)
        if len(self._ends) < LIMIT_EPISODES or len(lengths) != 1 or not terminal:
            return
        (length,) = lengths
        if length >= LIMIT_LENGTH:
            yield Finding(
                'error',
                f'All {len(self._ends)} episodes ended after {length} steps with '
                'is_terminal=True, which looks like a time limit.',
                'At a time limit set is_last but not is_terminal (in Gymnasium: '
                'truncated, not terminated); else the agent believes that nothing is '
                'worth anything after that moment, which it cannot see coming.',
            )


class FirstRewards:
    """Rewards before any action was taken."""

    def __init__(self, obs_space: Spaces) -> None:
        self._reward = 0.0

    def see(self, step: Step) -> None:
        if step.obs['is_first'] and step.obs['reward']:
            self._reward = float(step.obs['reward'])

    def findings(self) -> Iterator[Finding]:
        if self._reward:
            yield Finding(
                'error',
                f'The first observation of an episode has the reward {self._reward:g}.',
                'A reward belongs to the step that an action has led to: return 0 '
                'after a reset.',
            )


class Reuse:
    """Arrays of earlier observations that are overwritten by later ones."""

    def __init__(self, obs_space: Spaces) -> None:
        self._last: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self._reused: set[str] = set()

    def see(self, step: Step) -> None:
        for key, (array, copy) in self._last.items():
            if not np.array_equal(array, copy, equal_nan=array.dtype.kind == 'f'):
                self._reused.add(key)
        arrays = {
            k: v for k, v in step.obs.items() if isinstance(v, np.ndarray) and v.shape
        }
        self._last = {key: (array, array.copy()) for key, array in arrays.items()}

    def findings(self) -> Iterator[Finding]:
        if self._reused:
            yield Finding(
                'error',
                f'Arrays of {sorted(self._reused)} change after they were returned.',
                'Return a copy: the environment writes into what was given away.',
            )


class StillImages:
    """Images that never change."""

    def __init__(self, obs_space: Spaces) -> None:
        self._images = [key for key, space in obs_space.items() if is_image(space)]
        self._first: dict[str, np.ndarray] = {}
        self._moving: set[str] = set()
        self._count = 0

    def see(self, step: Step) -> None:
        self._count += 1
        for key in self._images:
            if key in step.obs and key not in self._moving:
                image = np.asarray(step.obs[key])
                before = self._first.setdefault(key, image.copy())
                if not np.array_equal(before, image):
                    self._moving.add(key)

    def findings(self) -> Iterator[Finding]:
        still = sorted(set(self._images) - self._moving)
        if still and self._count >= STILL_STEPS:
            yield Finding(
                'warning',
                f'The images {still} were the same in all {self._count} steps of '
                'random play.',
                'See whether the camera works and shows what the actions change.',
            )


class Speed:
    """Few steps per second, or a few very slow ones, that all others wait for."""

    def __init__(self, obs_space: Spaces) -> None:
        self._seconds: list[float] = []

    def see(self, step: Step) -> None:
        if not step.obs['is_first']:
            self._seconds.append(step.seconds)

    @property
    def rate(self) -> float:
        """Steps per second without resets."""
        return len(self._seconds) / max(sum(self._seconds), 1e-9)

    @property
    def slow_share(self) -> float:
        """Share of the steps that take ten times as long as the median, or more."""
        if not self._seconds:
            return 0.0
        bound = max(SLOW_SECONDS, SLOW_FACTOR * float(np.median(self._seconds)))
        return float(np.mean(np.array(self._seconds) >= bound))

    def findings(self) -> Iterator[Finding]:
        if not self._seconds:
            return
        if self.rate < STEPS_PER_SECOND:
            yield Finding(
                'warning',
                f'It makes {self.rate:.2g} steps per second.',
                'Use many at once (--run.envs 32), each in a process of its own '
                '(--run.envs_per_worker 1), or a higher train ratio.',
            )
        if self.slow_share >= SLOW_SHARE:
            yield Finding(
                'warning',
                f'{self.slow_share:.0%} of the steps take {SLOW_FACTOR} times as long '
                'as the others, or more.',
                'Do such work at resets, or use --run.envs_per_worker 1, so that one '
                'slow environment does not hold up others.',
            )


class Endless:
    """Episodes that do not end."""

    def __init__(self, obs_space: Spaces) -> None:
        self._count = self._longest = 0

    def see(self, step: Step) -> None:
        self._count = 0 if step.obs['is_first'] else self._count + 1
        self._longest = max(self._longest, self._count)

    def findings(self) -> Iterator[Finding]:
        if self._longest >= LONG:
            yield Finding(
                'warning',
                f'An episode had not ended after {self._longest} steps.',
                'Scores are logged at the ends of episodes: set a time limit, such as '
                '--env.own.length 1000.',
            )


CHECKS: tuple[type[Check], ...] = (
    Keys,
    Values,
    Flags,
    TimeLimits,
    FirstRewards,
    Reuse,
    StillImages,
    Endless,
)


def unrepeatable(keys: list[str], number: int) -> Finding:
    """Equal seeds and so many equal actions led to observations that differ."""
    return Finding(
        'warning',
        f'Two environments with the same seed differ in {keys} after {number} equal '
        'actions.',
        'Let the factory take `seed` and draw all random numbers from a generator that '
        'is seeded with it (in Gymnasium: self.np_random); else runs cannot be '
        'repeated.',
    )


def static_findings(
    obs_space: Spaces, act_space: Spaces, resized: bool = True
) -> Iterator[Finding]:
    """What can be said about the spaces alone.

    resized: images get another size afterwards; else the agent judges theirs.
    """
    for key, space in obs_space.items():
        if is_log(key):
            continue
        if is_image(space):
            yield from _image_findings(key, space.shape, resized)
        elif len(space.shape) > 2:
            yield Finding(
                'error',
                f'Observation {key!r} is {describe(space)}, neither an image (uint8, '
                '[height, width, channels]) nor of rank 2 or less.',
                'Declare pictures as uint8 from 0 to 255 and flatten anything else, or '
                f'let {CONVERT} do both.',
            )
    for key, space in act_space.items():
        if space.dtype.kind == 'f' and not (
            np.isfinite(space.low).all() and np.isfinite(space.high).all()
        ):
            yield Finding(
                'error',
                f'Action {key!r} has no finite bounds, so it cannot be normalized.',
                'Declare the smallest and largest useful values, to which the '
                f"agent's actions in [-1, 1] are scaled, or give one bound for all: "
                f'{BOUND}.',
            )


def _image_findings(
    key: str, shape: tuple[int, ...], resized: bool
) -> Iterator[Finding]:
    height, width, channels = shape
    if is_channels_first(shape):
        yield Finding(
            'error',
            f'Image {key!r} has the shape {shape}, with the channels first.',
            f'Return [height, width, channels], or let {CONVERT} transpose it.',
        )
    elif height <= THIN < width == channels:
        yield Finding(
            'error',
            f'Image {key!r} has the shape {shape}, with the channels of several '
            'pictures first.',
            'Return [height, width, channels], for example with '
            'numpy.moveaxis(image, 0, -1).',
        )
    elif resized and any(
        side % SIDE_FACTOR or not SIDES[0] <= side <= SIDES[1] for side in shape[:2]
    ):
        yield Finding(
            'warning',
            f'Image {key!r} is {height} x {width}. Sides must be multiples of '
            f'{SIDE_FACTOR} from {SIDES[0]} to {SIDES[1]}, so it will be resized.',
            'Return 64 x 64 or 96 x 96, or choose with --env.own.size (env.gym.size) '
            'what it becomes.',
        )
