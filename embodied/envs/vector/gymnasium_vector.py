"""Adapter from vector environments of Gymnasium to the VectorEnv contract."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from ...core.base import Batch, VectorEnv
from ...core.errors import ConfigError, SpaceError
from ..adapters.foreign_kinds import read_reset, read_step
from ..adapters.from_gym import codecs_of, create_by_id
from ..spaces import KnownSpaces, act_spaces, obs_spaces
from .member_infos import MemberInfos
from .rows import FINAL, Final, to_host
from .seeds import Seeds, member_seeds

__all__ = ['FromGymnasiumVector', 'make_members']

MODES = ('NEXT_STEP', 'SAME_STEP', 'DISABLED')
FINAL_OBS = ('final_obs', 'final_observation')  # the latter before Gymnasium 1.0


class FromGymnasiumVector(KnownSpaces, VectorEnv):
    """Any `gymnasium.vector.VectorEnv`, in each of the three modes of resetting.

    Keys, `obs_key`, `act_key` and `log` are those of FromGym. The first reset gets one
    seed per member, see `member_seeds`, or the first of these if the environment takes
    a single one.

    NEXT_STEP: an ended member begins again with the next step. SAME_STEP: it has begun
    again already, and its last row, from `final_obs`, is under `final`. DISABLED: it
    is reset right after the step, and its last row is under `final` too. autoreset:
    the mode of an environment that does not name it in metadata['autoreset_mode'].

    Gymnasium steps all members or none. A member that is to begin in mid-episode takes
    the step with the others and is reset after it by `options['reset_mask']`. masked:
    whether the environment knows this option; None: those that Gymnasium makes and
    those in the mode DISABLED do. The others have `resets_members = False`.
    """

    def __init__(
        self,
        env: gymnasium.vector.VectorEnv,
        obs_key: str | None = None,
        act_key: str = 'action',
        seed: Seeds = None,
        log: Sequence[str] = (),
        autoreset: str | None = None,
        masked: bool | None = None,
    ) -> None:
        self._env: Any = env
        self.num = env.num_envs
        self._name = type(env.unwrapped).__name__
        self._mode = _autoreset_mode(env, self._name, autoreset)
        one_each = isinstance(env.unwrapped, SyncVectorEnv | AsyncVectorEnv)
        if masked is None:
            masked = one_each or self._mode == 'DISABLED'
        self.resets_members = masked
        seeds = member_seeds(seed, self.num)
        self._seed = seeds if one_each or seeds is None else seeds[0]
        self._infos = MemberInfos(log, self.num)
        self._obs, self._act = codecs_of(
            env.single_observation_space, env.single_action_space, obs_key, act_key
        )
        self._obs_space = {**obs_spaces(self._obs.spaces), **self._infos.spaces}
        self._act_space = act_spaces(self._act.spaces)
        self._begun = False
        self._ended = np.zeros(self.num, bool)  # Their next row is a first one.

    @property
    def gym_env(self) -> gymnasium.vector.VectorEnv:
        """The environment inside."""
        return self._env

    def step(self, actions: Mapping[str, Any]) -> dict[str, Any]:
        asked = np.asarray(actions['reset'], bool)
        if not self._begun or asked.all():
            return self._begin()
        forced = asked & ~self._ended & self.resets_members
        step = self._take(actions)
        first, resets, final = self._ended | forced, forced, None
        if self._mode != 'NEXT_STEP':
            # A row in which an episode was to be cut off is not its last one.
            final = self._final(step, np.flatnonzero(step.is_last & ~forced))
            first = first | step.is_last
            resets = first if self._mode == 'DISABLED' else forced & ~step.is_last
        task = self._reset_members(step.task, resets) if resets.any() else step.task
        rows = {
            **task,
            'reward': np.where(first, np.float32(0), step.reward),
            'is_first': first,
            'is_last': step.is_last & ~first,
            'is_terminal': step.is_terminal & ~first,
        }
        self._ended = rows['is_last']
        return rows if final is None else {**rows, FINAL: final}

    def close(self) -> None:
        self._env.close()

    def _begin(self) -> dict[str, Any]:
        """First rows of all members."""
        result = self._env.reset(seed=self._seed)
        self._seed = None
        self._begun = True
        self._ended = np.zeros(self.num, bool)
        return {
            **self._first_rows(result),
            'reward': np.zeros(self.num, np.float32),
            'is_first': np.ones(self.num, bool),
            'is_last': np.zeros(self.num, bool),
            'is_terminal': np.zeros(self.num, bool),
        }

    def _take(self, actions: Mapping[str, Any]) -> '_Step':
        """One step of all members."""
        result = self._env.step(self._act.decode(actions))
        obs, reward, terminated, truncated, info = read_step(self._name, result)
        reward, terminated, truncated = to_host((reward, terminated, truncated))
        is_last = (terminated | truncated).astype(bool)
        # In the mode SAME_STEP the info of a last row is in `final_info`.
        ends = self._mode != 'SAME_STEP' and bool(is_last.any())
        task = {**self._obs.encode(to_host(obs)), **self._infos(info, ends)}
        is_terminal = terminated.astype(bool)
        return _Step(task, reward.astype(np.float32), is_last, is_terminal, info)

    def _final(self, step: '_Step', members: np.ndarray) -> Final | None:
        """Rows of members whose episodes have ended with this step."""
        if not len(members):
            return None
        if self._mode == 'SAME_STEP':
            infos = self._infos(step.info.get('final_info', {}), ends=True)
            logged = {key: value[members] for key, value in infos.items()}
            task = {**self._encode_final(step.info, members), **logged}
        else:
            task = {key: value[members] for key, value in step.task.items()}
        rows = {
            **task,
            'reward': step.reward[members],
            'is_first': np.zeros(len(members), bool),
            'is_last': np.ones(len(members), bool),
            'is_terminal': step.is_terminal[members],
        }
        return Final(members, rows)

    def _encode_final(self, info: Mapping[str, Any], members: np.ndarray) -> Batch:
        """Last observations of these members."""
        values = next((info[key] for key in FINAL_OBS if key in info), None)
        if values is None:
            raise SpaceError(
                f'{self._name} resets in the mode SAME_STEP, and its infos have no '
                f"'final_obs' where an episode ends. They have {sorted(info)}."
            )
        if not (isinstance(values, np.ndarray) and values.dtype.kind == 'O'):
            # Arrays of all members.
            rows = self._obs.encode(to_host(values))
            return {key: value[members] for key, value in rows.items()}
        encoded = [self._obs.encode(values[member]) for member in members]
        return {key: np.stack([row[key] for row in encoded]) for key in encoded[0]}

    def _reset_members(self, task: Batch, members: np.ndarray) -> Batch:
        """The task's rows, with first ones of these members in their places."""
        first = self._first_rows(self._env.reset(options={'reset_mask': members}))
        merged = {key: np.array(value) for key, value in task.items()}
        for key, value in first.items():
            merged[key][members] = value[members]
        return merged

    def _first_rows(self, result: Any) -> Batch:
        obs, info = read_reset(self._name, result)
        return {**self._obs.encode(to_host(obs)), **self._infos(info)}


class _Step(NamedTuple):
    """What one step of all members gave."""

    task: Batch  # rows of the task's keys
    reward: np.ndarray
    is_last: np.ndarray
    is_terminal: np.ndarray
    info: Mapping[str, Any]


def make_members(
    name: str, num: int, seed: Seeds = None, log: Sequence[str] = ()
) -> FromGymnasiumVector:
    """`num` environments of a registered id, one after the other in this process.

    These are the environments that FromGym makes. A faster `vector_entry_point` of an
    id, such as that of CartPole-v1, draws all members' random numbers from one seed.
    """
    if num < 1:
        raise ConfigError(f'A vector environment needs num >= 1, got {num}.')
    make = lambda: create_by_id(name, {})
    return FromGymnasiumVector(SyncVectorEnv([make] * num), seed=seed, log=log)


def _autoreset_mode(env: Any, name: str, given: str | None) -> str:
    declared = (env.metadata or {}).get('autoreset_mode')
    mode = getattr(declared, 'name', declared) or given
    if mode in MODES:
        return mode
    raise ConfigError(
        f"The vector environment {name} does not say in metadata['autoreset_mode'] "
        f'when it resets members (got {mode!r}). Set it to one of '
        f'gymnasium.vector.AutoresetMode, or let the factory return '
        f"embodied.envs.FromGymnasiumVector(env, autoreset='SAME_STEP'), with one of "
        f'{", ".join(MODES)}.'
    )
