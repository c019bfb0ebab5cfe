"""Twins: vector environments with equal seeds and actions, and one reset on request."""

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..vector.rows import members_of
from .faults import Finding, unrepeatable
from .last_rows import Features, to_bytes
from .member_play import Call, name_members, play

__all__ = ['compare']

COMPARED = 200  # calls that must be equal under equal seeds
PROBED = 40  # calls within which a member is reset
AFTER = 4  # calls from then on that are looked at
WATCHED = 16  # members that are looked at
NEARER = 0.5  # times the distance to what would have been

Make = Callable[[int], Any]


class _Trace(NamedTuple):
    """What a vector environment gave when all members took the same actions."""

    digests: list[dict[str, bytes]]  # of each key, per call
    members_equal: bool
    begins: np.ndarray  # [calls, N] is_first
    ends: np.ndarray  # [calls, N] is_last, also of last rows under `final`
    features: np.ndarray  # [PROBED or fewer calls, watched, F]
    resets_members: bool


def compare(
    make: Make, calls: int, seconds: float, with_resets: bool
) -> Iterator[Finding]:
    """Whether equal seeds give equal rows, and members have seeds of their own.

    with_resets: also whether a reset in mid-episode begins an episode of that member
    alone.
    """
    calls = min(calls, COMPARED)
    one, again, other = (_trace(make, seed, calls, seconds / 4) for seed in (1, 1, 2))
    repeat = _difference(one, again)
    if repeat is not None:
        yield unrepeatable(*repeat)
    num = one.begins.shape[1]
    is_random = repeat is not None or _difference(one, other) is not None
    if num > 1 and one.members_equal and is_random:
        yield Finding(
            'error',
            f'All {num} members draw the same random numbers: their rows are equal as '
            f'long as their actions are, though environments with other seeds differ.',
            'Seed members differently, for example with seed + member (in JAX: '
            'jax.random.split(key, num)).',
        )
    if with_resets:
        yield from _probe_resets(make, one, seconds / 4)


def _probe_resets(make: Make, plain: _Trace, seconds: float) -> Iterator[Finding]:
    """Resets one member where the trace, of the same seed, has none."""
    moved = (plain.ends | plain.begins)[1:PROBED].any(1)
    quiet = 1 + (int(np.argmax(moved)) if moved.any() else len(moved))
    at = quiet // 2  # the call, in mid-episode for all members
    if at < 1:
        return
    probe = _trace(make, 1, min(quiet, at + AFTER), seconds, forced={at: 0})
    if len(probe.begins) <= at or probe.ends[at - 1].any():
        return
    others = probe.begins[at] & ~probe.ends[at]
    others[0] = False
    if plain.resets_members and not probe.begins[at, 0]:
        yield Finding(
            'error',
            'A reset of member 0 in mid-episode is ignored: expected is_first=True in '
            'its row, got False.',
            'Begin an episode of each member whose `reset` is True, or give the '
            'environment the attribute resets_members = False.',
        )
    elif others.any() or _go_back(plain, probe, at):
        flags = 'have is_first=False, but show the beginning'
        who = 'all others'
        if others.any():
            who, flags = name_members(others), 'have is_first=True, expected False'
        yield Finding(
            'error',
            f'A reset of member 0 in mid-episode also resets {who}: their rows '
            f'{flags}.',
            'Begin episodes of those members alone whose `reset` is True.',
        )


def _go_back(plain: _Trace, probe: _Trace, at: int) -> bool:
    """Whether the other members go back to where they began, without saying so.

    If nothing but the reset differs, the rows of the others are those of the trace
    without it. Members that share a generator of random numbers differ as well, but do
    not come near to their first rows.
    """
    stop = min(len(probe.features), len(plain.features))
    if probe.features.shape[1] < 2 or _difference(plain, probe, at) is not None:
        return False
    now, expected = probe.features[at:stop, 1:], plain.features[at:stop, 1:]
    start = probe.features[: stop - at, 1:]
    scale = plain.features.std((0, 1))
    scale = np.where(scale > 0, scale, np.inf)
    changed = np.linalg.norm((now - expected) / scale, axis=-1)
    to_start = np.linalg.norm((now - start) / scale, axis=-1)
    all_changed = bool((changed.max(0) > 0).all())
    return all_changed and float(to_start.mean()) < NEARER * float(changed.mean())


def _trace(
    make: Make,
    seed: int,
    calls: int,
    seconds: float,
    forced: Mapping[int, int] | None = None,
) -> _Trace:
    with contextlib.closing(make(seed)) as env:
        features = Features(env.obs_space)
        watched = min(members_of(env), WATCHED)
        digests, begins, ends = [], [], []
        rows: list[np.ndarray] = []
        equal = True
        for call in play(env, calls, seconds, is_shared=True, forced=forced):
            digests.append(_digest(call))
            equal = equal and _are_equal(call)
            begins.append(call.all.common('is_first').astype(bool))
            ended = call.all.common('is_last').astype(bool)
            for part in call.parts[:-1]:
                ended[part.members] = True
            ends.append(ended)
            if len(rows) < PROBED:
                first = {k: v[:watched] for k, v in call.all.rows.items()}
                rows.append(features(first, watched))
        resets = getattr(env, 'resets_members', True)
    return _Trace(
        digests, equal, np.array(begins), np.array(ends), np.array(rows), resets
    )


def _digest(call: Call) -> dict[str, bytes]:
    digests: dict[str, Any] = {}
    for part in call.parts:
        for key, value in part.rows.items():
            digest = digests.setdefault(key, hashlib.blake2b(digest_size=16))
            digest.update(part.members.tobytes())
            digest.update(to_bytes(value))
    return {key: digest.digest() for key, digest in digests.items()}


def _are_equal(call: Call) -> bool:
    """Whether all members have the same row."""
    return all(
        np.array_equal(
            value,
            np.broadcast_to(value[:1], value.shape),
            equal_nan=value.dtype.kind == 'f',
        )
        for value in call.all.rows.values()
    )


def _difference(
    one: _Trace, two: _Trace, calls: int | None = None
) -> tuple[list[str], int] | None:
    """The keys in which the traces differ first, and after how many calls."""
    pairs = zip(one.digests[:calls], two.digests[:calls], strict=False)
    for number, (ours, theirs) in enumerate(pairs):
        keys = [key for key in ours if ours[key] != theirs.get(key)]
        if keys:
            return keys, number
    return None
