"""Driver: steps environments with a policy and hands out the transitions."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...core import unpickling
from ...core.base import Batch, Carry, Env, Spaces
from ...core.errors import ConfigError, DreamerError, SpaceError
from ...core.step_keys import without_log
from ..vector.rows import Final
from .handles import Handle, InlineHandle, ProcessHandle
from .host import EnvInfo
from .stacking import check_infos, stack, take_members, zero_where

__all__ = ['Driver']

Policy = Callable[..., tuple[Carry, Mapping[str, Any], Mapping[str, Any]]]


class Driver:
    """Runs N environments in step, each in a process of its own or all in this one.

    Factory i makes environment i. If the first one is a vector environment, factory i
    makes the members from i on, and only as many factories are called as are needed;
    the last one may make fewer members. fits: as many environments are made as fit
    whole vector environments, but at least one of these.

    A transition is {**obs, **acts, **outs}: the reward was received on entering the
    step, the action was chosen after seeing it. The last step of an episode carries
    zeros as its action, and the action that follows has reset. Keys `log/...` of
    observations are part of transitions but never reach the policy.

    `kwargs` are passed to the policy and to the callbacks of `on_step`. If a step is
    interrupted, by an error in an environment, the policy or a callback, its
    transitions count as lost: the next call starts new episodes everywhere.
    """

    def __init__(
        self,
        make_env_fns: Sequence[Callable[[], Env]],
        parallel: bool = True,
        fits: bool = False,
        **kwargs: Any,
    ) -> None:
        if not make_env_fns:
            raise ConfigError('A driver needs at least one environment.')
        self._kwargs = kwargs
        self._step_callbacks: list[Callable] = []
        self._batch_callbacks: list[Callable] = []
        self._handles: list[Handle] = []
        try:
            infos = self._open(make_env_fns, parallel, fits)
            check_infos(infos)
        except BaseException:
            self.close()
            raise
        self._saves = [info.saves for info in infos]
        self._has_members = bool(infos[0].members)
        self._sizes = [max(1, info.members) for info in infos]
        self.length = sum(self._sizes)
        self.obs_space: Spaces = infos[0].obs_space
        self.act_space: Spaces = infos[0].act_space
        self._workers = np.arange(self.length)
        self._carry: Carry = ()
        self._acts: Batch | None = None

    def reset(self, init_policy: Callable[[int], Carry] | None = None) -> None:
        """Starts new episodes and a fresh carry with the next step."""
        self._acts = None
        self._carry = init_policy(self.length) if init_policy else ()

    def on_step(self, callback: Callable[..., None]) -> None:
        """Calls `callback(transition, index, **kwargs)` for each environment."""
        self._step_callbacks.append(callback)

    def on_batch(self, callback: Callable[[Batch, np.ndarray], None]) -> None:
        """Calls `callback(transitions, indices)` with [N, ...] per key and [N].

        Such callbacks run before those of `on_step`.
        """
        self._batch_callbacks.append(callback)

    def __call__(self, policy: Policy, steps: int = 0, episodes: int = 0) -> None:
        """Goes on until `steps` steps and `episodes` ends of episodes were seen.

        `policy(carry, obs, **kwargs) -> carry, acts, outs` acts for all environments
        at once, so their number is the granularity.
        """
        seen_steps, seen_episodes = 0, 0
        while seen_steps < steps or seen_episodes < episodes:
            is_last = self._step(policy)
            seen_steps += len(is_last)
            seen_episodes += int(is_last.sum())

    def save(self) -> Any:
        """State between two calls; environments that cannot be saved have None."""
        return {
            'acts': self._acts,
            'carry': _to_numpy(self._carry),
            'envs': self._ask_all('save', where=self._saves),
        }

    def load(self, data: Any) -> None:
        """Continues from `save()`.

        Environments whose state was not saved start new episodes. With another number
        of environments than before, all of them do, from the carry of `reset`.
        """
        states, acts = data['envs'], data['acts']
        same = acts is None or len(acts['reset']) == self.length
        if len(states) != len(self._handles) or not same:
            self._acts = None
            return
        known = [self._saves[i] and x is not None for i, x in enumerate(states)]
        trust = unpickling.trusted()
        self._ask_all('load', [(x, trust) for x in states], where=known)
        self._carry = data['carry']
        self._acts = acts
        if self._acts is not None:
            reset = self._acts['reset'] | ~np.repeat(known, self._sizes)
            self._acts = {**self._acts, 'reset': reset}

    def close(self) -> None:
        """Closes all environments and ends their processes."""
        for handle in self._handles:
            handle.hang_up()
        failures = []
        for handle in self._handles:
            try:
                handle.close()
            except DreamerError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _open(
        self, makes: Sequence[Callable[[], Env]], parallel: bool, fits: bool
    ) -> list[EnvInfo]:
        """Makes the first environment, then the others that are needed."""
        handle = ProcessHandle if parallel else InlineHandle
        self._handles.append(handle(makes[0], 0))
        (first,) = self._ask_all('make')
        members = max(1, first.members)
        rest = range(members, len(makes), members)
        if fits and len(makes) % members:
            rest = rest[:-1]
        self._handles += [handle(makes[index], index) for index in rest]
        opened = [False] + [True] * len(rest)
        infos = [first, *self._ask_all('make', where=opened)[1:]]
        total = sum(max(1, info.members) for info in infos)
        if total != len(makes) and not fits:
            raise ConfigError(
                f'{len(makes)} environments are asked for (run.envs), and the vector '
                f'environment has {members} members, which step together. Ask for a '
                f'multiple of {members}.'
            )
        return infos

    def _step(self, policy: Policy) -> np.ndarray:
        """The transitions' `is_last`, [N] or more."""
        acts = self._first_acts() if self._acts is None else self._acts
        self._acts = None  # Until the step is complete, there is none to continue.
        replies = self._ask_all('step', self._split(acts))
        obs, final = self._join(replies)
        if final is not None:
            self._hand_out_final(policy, obs, final)
        is_last = obs['is_last']
        visible = without_log(obs)
        self._carry, choices, outs = policy(self._carry, visible, **self._kwargs)
        acts = self._check_acts(choices)
        if is_last.any():
            acts = {k: zero_where(is_last, v) for k, v in acts.items()}
        outs = {k: np.asarray(v) for k, v in outs.items()}
        self._hand_out({**obs, **acts, **outs}, self._workers)
        self._acts = {**acts, 'reset': is_last.copy()}
        return is_last if final is None else np.append(is_last, final.rows['is_last'])

    def _split(self, acts: Batch) -> list[tuple[Batch]]:
        """The actions for each handle."""
        if not self._has_members:
            return [({k: v[i] for k, v in acts.items()},) for i in range(self.length)]
        return [({k: v[part] for k, v in acts.items()},) for part in self._parts()]

    def _parts(self) -> list[slice]:
        """The members of each handle among all."""
        ends = np.cumsum(self._sizes).tolist()
        return [
            slice(end - size, end) for end, size in zip(ends, self._sizes, strict=True)
        ]

    def _join(self, replies: list[Any]) -> tuple[Batch, Final | None]:
        """Rows of all environments, and last rows beside them, from each handle's."""
        if not self._has_members:
            return stack(replies, self.obs_space), None
        parts = [
            take_members(reply, self.obs_space, size)
            for reply, size in zip(replies, self._sizes, strict=True)
        ]
        obs = _concatenate([rows for rows, _ in parts])
        finals = [
            final._replace(members=final.members + part.start)
            for part, (_, final) in zip(self._parts(), parts, strict=True)
            if final is not None
        ]
        if not finals:
            return obs, None
        members = np.concatenate([final.members for final in finals])
        return obs, Final(members, _concatenate([final.rows for final in finals]))

    def _hand_out_final(self, policy: Policy, obs: Batch, final: Final) -> None:
        """Hands out the last steps of episodes, which come before the others.

        The policy sees them for what it puts out beside actions. The carry stays, since
        these members begin again in the next row and the others have not moved.
        """
        members, rows = final
        visible = without_log(obs)
        for key, value in visible.items():
            visible[key] = value.copy()
            visible[key][members] = rows[key]
        _, choices, outs = policy(self._carry, visible, **self._kwargs)
        acts = self._check_acts(choices)
        zeros = {k: np.zeros_like(v[members]) for k, v in acts.items()}
        outs = {k: np.asarray(v)[members] for k, v in outs.items()}
        self._hand_out({**rows, **zeros, **outs}, members)

    def _hand_out(self, trans: Batch, workers: np.ndarray) -> None:
        for callback in self._batch_callbacks:
            callback(trans, workers)
        if not self._step_callbacks:
            return
        for row, worker in enumerate(workers.tolist()):
            tran = {k: v[row] for k, v in trans.items()}
            for callback in self._step_callbacks:
                callback(tran, worker, **self._kwargs)

    def _ask_all(
        self,
        request: str,
        args: Sequence[tuple] | None = None,
        where: Sequence[bool] | None = None,
    ) -> list[Any]:
        """Replies of all environments, None of those left out.

        Every request is sent before the first reply is awaited, and every reply is
        taken before a failure is raised, so the others stay in order.
        """
        chosen = [i for i in range(len(self._handles)) if where is None or where[i]]
        for i in chosen:
            self._handles[i].request(request, *(args[i] if args else ()))
        replies: list[Any] = [None] * len(self._handles)
        failures = []
        for i in chosen:
            try:
                replies[i] = self._handles[i].receive()
            except DreamerError as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return replies

    def _first_acts(self) -> Batch:
        acts = {
            k: np.zeros((self.length, *v.shape), v.dtype)
            for k, v in self.act_space.items()
        }
        return {**acts, 'reset': np.ones(self.length, bool)}

    def _check_acts(self, acts: Mapping[str, Any]) -> Batch:
        arrays = {k: np.asarray(v) for k, v in acts.items() if k != 'reset'}
        got = {k: v.shape for k, v in arrays.items()}
        expected = {
            k: (self.length, *v.shape)
            for k, v in self.act_space.items()
            if k != 'reset'
        }
        if got != expected:
            raise SpaceError(
                f'The policy must return actions with the shapes {expected}, got {got}.'
            )
        return arrays


def _concatenate(parts: list[Batch]) -> Batch:
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def _to_numpy(tree: Carry) -> Carry:
    """The carry with its arrays copied to NumPy, wherever they live."""
    if isinstance(tree, dict):
        return {k: _to_numpy(v) for k, v in tree.items()}
    if isinstance(tree, (list, tuple)):
        items = [_to_numpy(v) for v in tree]
        return type(tree)(*items) if hasattr(tree, '_fields') else type(tree)(items)
    return np.array(tree) if hasattr(tree, '__array__') else tree
