"""Compatibility: which environment workers fit the agent of a run, and which do not.

Workers declare their spaces in the handshake, which compares them with those of the
agent. Rows are checked when they arrive: not every transport has a handshake, and not
every agent has attributes for its spaces. Keys that begin with `log/` are not compared.
"""

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...core import base
from ...core.errors import RowsError
from ...core.step_keys import is_log, without_log
from ...envs.runtime.stacking import NEEDED_OBS
from ...envs.spaces import describe
from .settings import FIRST_EVAL_ENV, MOST_ENVS

__all__ = ['RowCheck', 'agent_spaces', 'declare']

RESET = 'reset'
MOST_SIGNATURES = 1000  # that are remembered; log keys may come and go

Form = tuple[np.dtype, tuple[int, ...]]  # dtype and shape of one row
BOOL: Form = np.dtype(bool), ()
WORKER_ID: Form = np.dtype(np.uint8), (16,)


def agent_spaces(agent: Any) -> tuple[base.Spaces, base.Spaces]:
    """Spaces of observations and actions that the agent has, or {} for each."""
    return _spaces_of(agent, 'obs_space'), _spaces_of(agent, 'act_space')


def declare(
    obs_space: Mapping[str, Any], act_space: Mapping[str, Any]
) -> dict[str, str]:
    """Spaces as texts by name, for both sides of a handshake to compare.

    An agent may name only the observations that it uses. The list of all names is
    declared if the spaces are complete.
    """
    obs = without_log(obs_space)
    act = {k: v for k, v in act_space.items() if k != RESET}
    declared = {f'observation {key}': _text(space) for key, space in obs.items()}
    declared |= {f'action {key}': _text(space, True) for key, space in act.items()}
    if obs.keys() >= NEEDED_OBS:
        declared['observation keys'] = ', '.join(sorted(obs))
    if act:
        declared['action keys'] = ', '.join(sorted(act))
    return declared


class RowCheck:
    """Accepts rows of workers that fit the run, and raises RowsError for others.

    Observations have the keys, dtypes and shapes of `obs_space`. Keys that it leaves
    out are as in the first rows of each mode. Thread-safe.
    """

    def __init__(self, obs_space: Mapping[str, Any]) -> None:
        known = {
            key: (np.dtype(space.dtype), tuple(space.shape))
            for key, space in obs_space.items()
            if not is_log(key)
        }
        self._given: dict[str, Form] = {'is_first': BOOL, 'is_last': BOOL, **known}
        self._complete = known.keys() >= NEEDED_OBS
        self._expected: dict[str, dict[str, Form]] = {}  # by mode
        self._fitting: set[tuple] = set()  # signatures of rows that fit
        self._lock = threading.Lock()  # of the expected forms

    def __call__(self, mode: base.Mode, origin: Any, obs: Any) -> None:
        """Checks rows [n, ...]; cheap for rows with a known signature."""
        try:
            signature = (mode, _signature(origin), _signature(obs))
        except AttributeError as error:
            raise RowsError(
                'The run takes rows as two dicts of arrays: where they come from, and '
                f'what was observed. Something else was sent: {error}.'
            ) from error
        if signature not in self._fitting:
            with self._lock:
                self._check_origin(dict(_forms(origin)))
                self._check_obs(mode, dict(_forms(obs)))
                if len(self._fitting) >= MOST_SIGNATURES:
                    self._fitting.clear()
                self._fitting.add(signature)
        _check_envids(mode, origin['envid'])

    def _check_origin(self, forms: dict[Any, Form]) -> None:
        for key in ('envid', 'serial'):
            form = forms.get(key)
            if form is None or form[0].kind not in 'iu' or form[1] != ():
                raise _misfit(f'{key!r}', 'integers of shape ()', _words(form))
        if (form := forms.get('worker_id')) != WORKER_ID:
            raise _misfit("'worker_id'", _words(WORKER_ID), _words(form))

    def _check_obs(self, mode: base.Mode, forms: dict[Any, Form]) -> None:
        seen = {k: form for k, form in forms.items() if not _is_log(k)}
        for key, form in forms.items():
            if _is_log(key) or key == 'reward':
                _check_numeric(key, form)
        expected = self._expected.get(mode)
        if expected is None:
            extra = {} if self._complete else seen
            expected = {**extra, **self._given}
            expected.setdefault('reward', (np.dtype(np.float32), ()))
        for key in sorted(expected.keys() | seen.keys(), key=str):
            if expected.get(key) != seen.get(key):
                run, sent = expected.get(key), seen.get(key)
                raise _misfit(f'observation {key!r}', _words(run), _words(sent))
        self._expected[mode] = expected


def _spaces_of(agent: Any, name: str) -> base.Spaces:
    spaces = getattr(agent, name, None)
    known = isinstance(spaces, Mapping) and all(
        hasattr(space, 'dtype') and hasattr(space, 'shape') for space in spaces.values()
    )
    return dict(spaces) if known else {}  # type: ignore[arg-type]


def _text(space: Any, bounds: bool = False) -> str:
    """A space in words; `bounds` includes the bounds of real numbers."""
    dtype, shape = np.dtype(space.dtype), tuple(space.shape)
    discrete = dtype.kind in 'iu' and dtype != np.uint8
    if (bounds or discrete) and hasattr(space, 'low') and hasattr(space, 'high'):
        return describe(space)
    return _words((dtype, shape))


def _signature(values: Mapping[Any, base.Array]) -> tuple:
    return tuple([(k, v.dtype, v.shape[1:]) for k, v in values.items()])


def _forms(values: Mapping[Any, base.Array]) -> list[tuple[Any, Form]]:
    return [(key, (value.dtype, value.shape[1:])) for key, value in values.items()]


def _is_log(key: Any) -> bool:
    return isinstance(key, str) and is_log(key)


def _check_numeric(key: str, form: Form) -> None:
    """Refuses values that the logger could not add up over an episode."""
    dtype, shape = form
    # Small floats such as bfloat16 are of kind V to NumPy.
    real = dtype.kind in 'biuf' or 'float' in dtype.name
    if not real or (key == 'reward' and shape):
        raise _misfit(f'{key!r}', 'real numbers of shape ()', _words(form))


def _check_envids(mode: base.Mode, envids: base.Array) -> None:
    """Names the wrong rows, since a batch may hold rows of several workers."""
    end = MOST_ENVS + (FIRST_EVAL_ENV if mode == 'eval' else 0)
    numbers = envids.tolist()  # For few rows faster than NumPy.
    if min(numbers) >= 0 and max(numbers) < end:
        return
    wrong = [row for row, number in enumerate(numbers) if not 0 <= number < end]
    raise RowsError(
        f'A worker plays environment {numbers[wrong[0]]}. Number them from 0 on, below '
        f'{end}.',
        wrong,
    )


def _misfit(what: str, run: str, sent: str) -> RowsError:
    return RowsError(
        f'The run refuses rows of a worker: {what} is {run} in the run, and the worker '
        f'sent {sent}. Start the worker with the task and the env options of the run.'
    )


def _words(form: Form | None) -> str:
    return f'{form[0].name} of shape {form[1]}' if form else 'nothing'
