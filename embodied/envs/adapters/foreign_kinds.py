"""Foreign kinds: names environments of interfaces that cannot be played as they are."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...core import manual
from ...core.errors import ConfigError, SpaceError

__all__ = [
    'adapt_vector',
    'create',
    'is_vector',
    'read_reset',
    'read_reward',
    'read_step',
    'refuse',
]

PAGE = manual.page('your_environment.md#vector-environments')
OLD = (
    'Update it to gymnasium, or wrap it with shimmy: '
    "gymnasium.make('GymV26Environment-v0', env=...), for gym before 0.26 "
    "'GymV21Environment-v0'."
)


def refuse(env: Any) -> None:
    """Raises ConfigError for environments of several players, several copies or gym."""
    name = type(env).__name__
    if hasattr(env, 'possible_agents') or callable(
        getattr(env, 'observation_space', None)
    ):
        raise ConfigError(
            f'{name} looks like an environment of PettingZoo, with several players. '
            'An agent here plays one: wrap it in a gymnasium.Env that returns what one '
            'player sees and lets fixed policies act for the others.'
        )
    if is_vector(env):
        raise ConfigError(
            f'{name} is a vector environment of {env.num_envs} environments, and '
            f'FromGym plays a single one. Use embodied.envs.FromGymnasiumVector for '
            f'those of gymnasium.vector, and a class with the methods of '
            f'embodied.VectorEnv for others: {PAGE}.'
        )
    space = getattr(env, 'observation_space', None)
    if type(space).__module__.partition('.')[0] == 'gym':
        raise ConfigError(
            f'{name} is an environment of the package gym, which gymnasium has '
            f'replaced. {OLD}'
        )


def create(env: Any, kwargs: dict[str, Any], adapter: str, wanted: str) -> Any:
    """An instance as it is, or what a factory makes of `kwargs`.

    wanted: what `adapter` takes, beginning with the kind of environment, for messages.
    """
    if hasattr(env, 'reset') and not isinstance(env, type):
        if kwargs:
            raise ConfigError(
                f'{adapter} got an instance and the settings {sorted(kwargs)}, which '
                f'come too late for it. Leave them out, or pass something else of '
                f'these: {wanted}.'
            )
        return env
    if callable(env):
        return env(**kwargs)
    raise ConfigError(f'{adapter} needs {wanted}, got {env!r}.')


def is_vector(env: Any) -> bool:
    """Whether a foreign environment steps several copies at once: those of Gymnasium,
    EnvPool and simulators on a GPU, and VecEnv of stable-baselines3."""
    names = ('single_observation_space', 'step_wait')
    copies = hasattr(env, 'num_envs') and any(hasattr(env, name) for name in names)
    return copies or _is_pool(env)


def adapt_vector(env: Any, seed: int | None, log: Sequence[str]) -> Any:
    """Brings vector environments of Gymnasium and EnvPool to the VectorEnv contract."""
    import gymnasium

    from ..vector.envpool_vector import from_pool
    from ..vector.gymnasium_vector import FromGymnasiumVector

    if _is_pool(env):
        return from_pool(env, log)
    if isinstance(env, gymnasium.vector.VectorEnv):
        return FromGymnasiumVector(env, seed=seed, log=log)
    raise ConfigError(
        f'{type(env).__name__} is a vector environment of {env.num_envs} environments, '
        f'but none of gymnasium.vector or EnvPool. Wrap it in a class with the methods '
        f'of embodied.VectorEnv: num, obs_space, act_space, step and close. {PAGE} has '
        f'an example.'
    )


def _is_pool(env: Any) -> bool:
    """Whether it is a pool of EnvPool, which need not be installed."""
    return any(kind.__module__.startswith('envpool.') for kind in type(env).__mro__)


def read_reset(name: str, result: Any) -> tuple[Any, Mapping[str, Any]]:
    """Observation and info of a `reset` in Gymnasium's form."""
    if isinstance(result, tuple) and len(result) == 2:
        return result
    raise SpaceError(
        f'reset() of {name} returned a {type(result).__name__}, and Gymnasium asks for '
        f'(observation, info). Environments of old versions of gym return the '
        f'observation alone. {OLD}'
    )


def read_step(name: str, result: Any) -> tuple[Any, Any, Any, Any, Mapping[str, Any]]:
    """Observation, reward, terminated, truncated and info of a `step`."""
    if isinstance(result, tuple) and len(result) == 5:
        return result
    what = f'{len(result)} values' if isinstance(result, tuple) else f'{result!r:.80}'
    raise SpaceError(
        f'step() of {name} returned {what}, and Gymnasium asks for (observation, '
        f'reward, terminated, truncated, info). Environments of old versions of gym '
        f'return four. {OLD}'
    )


def read_reward(name: str, reward: Any) -> float:
    """The reward as a float."""
    if reward is None:
        raise SpaceError(
            f'{name} returned the reward None. Return a number, 0.0 where there is no '
            'reward.'
        )
    shape = np.shape(reward)
    if shape:
        raise SpaceError(
            f'{name} returned a reward of shape {shape}. Return a number, such as '
            'float(reward[0]) or the sum of its parts.'
        )
    return float(reward)
