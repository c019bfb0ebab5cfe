"""Settings of distributed runs: complete and check the `args` that roles get."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...core.errors import ConfigError
from ...core.renamed import renew
from ...envs.adapters.own import PICKLE
from ...processes import cpu
from ...transport import TRANSPORTS
from ..shared.settings import BATCH_SHAPES, NEEDED, Settings

__all__ = ['FIRST_EVAL_ENV', 'MOST_ENVS', 'SHARED', 'ParallelSettings', 'WorkerPlan']

# Options that all roles must agree on, compared in the handshake.
SHARED = ('eval_envs', 'actor_batch', *BATCH_SHAPES, 'replay_context')

MOST_ROWS = 1024  # in one policy call; environments may join beyond run.envs

# Environments join a run with any run.envs, so the numbers of those for evaluation
# do not depend on it.
MOST_ENVS = 1 << 16  # numbers of environments for training lie below
FIRST_EVAL_ENV = 100_000  # number of the first one for evaluation


class WorkerPlan(NamedTuple):
    """Environments that one worker process runs; all for training or all for eval."""

    envids: tuple[int, ...]
    is_eval: bool

    @property
    def indices(self) -> tuple[int, ...]:
        """Numbers of the environments among those of their kind, from 0 on."""
        first = FIRST_EVAL_ENV if self.is_eval else 0
        return tuple(envid - first for envid in self.envids)

    @property
    def name(self) -> str:
        """Name of the process, its log and its connections: env3, or eval0."""
        return f'{"eval" if self.is_eval else "env"}{self.indices[0]}'


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParallelSettings(Settings):
    """Options of the loops plus those of roles and of what connects them.

    Environments are numbered: those for training from 0, those for evaluation from
    FIRST_EVAL_ENV.
    """

    actor_addr: str = 'localhost:{auto}'
    replay_addr: str = 'localhost:{auto}'
    logger_addr: str = 'localhost:{auto}'
    actor_batch: int = -1
    actor_threads: int = 1
    agent_process: bool = True
    remote_envs: bool = False
    remote_replay: bool = False
    episode_timeout: float = 180.0
    replicas: int = 1
    first_env: int = 0
    task: str = ''  # '' if it is not known
    run_id: str = ''  # '' reads it from the folder, see run_id.py
    timeline_plan: str = ''  # '' records nothing, see processes/timeline.py
    envs_per_worker: int = 0
    vector_envs: bool = False  # known to have so many members as envs_per_worker
    env_devices: str = ''
    device_steps: int = 1
    transport: str = 'native'
    encrypt: bool = True
    max_wait: float = 0.002
    prefetch: int = 2
    update_queue: int = 8
    deterministic: bool = False
    grace: float = 60.0
    max_restarts: int = 5
    hang_timeout: float = 120.0

    @classmethod
    def read(
        cls, args: Mapping[str, Any], needed: Sequence[str] = NEEDED
    ) -> 'ParallelSettings':
        args = dict(args)
        if 'envs' not in args:  # A full batch can form.
            args['envs'] = max(cls.envs, int(args.get('actor_batch', 0)))
        if 'transport' in args:
            named = {'run.transport': args['transport']}
            args['transport'] = renew(named)['run.transport']
        settings = super().read(args, needed)
        assert isinstance(settings, ParallelSettings)
        return settings

    @property
    def batch_rows(self) -> int:
        """Rows per policy call that are planned for."""
        if self.actor_batch > 0:
            return self.actor_batch
        # All of them: fewer and larger policy calls leave more room for training.
        return self.envs

    @property
    def rows_limit(self) -> int:
        """Rows of a policy call, and of a message to the actor, at most."""
        return self.actor_batch if self.actor_batch > 0 else max(MOST_ROWS, self.envs)

    @property
    def moves_ahead(self) -> bool:
        """Whether one of the batches that are fetched ahead is moved to the device."""
        return self.prefetch > 1 and not self.deterministic

    @property
    def workers(self) -> list[WorkerPlan]:
        """How the environments are spread over worker processes."""
        return self.plan_workers()

    def plan_workers(self, first: int = 0) -> list[WorkerPlan]:
        """The same for those from number `first` on, which have joined a run.

        The environments for evaluation are on the machine of the first one.
        """
        # Those on the agent's device need no worker.
        train = range(first, self.envs if self.device_steps == 1 or first else 0)
        count = 0 if first else self.eval_envs
        evaluation = range(FIRST_EVAL_ENV, FIRST_EVAL_ENV + count)
        size = self._group_size(len(train) or count)
        return [
            WorkerPlan(tuple(ids[i : i + size]), is_eval)
            for ids, is_eval in ((train, False), (evaluation, True))
            for i in range(0, len(ids), size)
        ]

    def _group_size(self, envs: int) -> int:
        if self.envs_per_worker > 0:
            return self.envs_per_worker
        # One worker per core: its environments keep it busy, and few messages are
        # cheaper than many.
        return -(-envs // cpu.count_cores())

    @property
    def shared(self) -> dict[str, Any]:
        """Options by name that the handshake compares."""
        shared = {name: getattr(self, name) for name in SHARED}
        # The path of a pickled factory may differ from machine to machine.
        named = self.task and not self.task.startswith(PICKLE)
        return {'task': self.task, **shared} if named else shared

    def _smallest(self) -> dict[str, float]:
        own: dict[str, float] = {
            'actor_threads': 1,
            'replicas': 1,
            'first_env': 0,
            'device_steps': 1,
            'prefetch': 1,
            'update_queue': 1,
            'max_wait': 0.0,
            'episode_timeout': 0.0,
            'grace': 0.0,
            'max_restarts': 0,
            'hang_timeout': 0.0,
        }
        return super()._smallest() | own

    def _check(self) -> None:
        super()._check()
        if self.actor_batch > self.envs:
            raise ConfigError(
                f'run.actor_batch={self.actor_batch} exceeds run.envs={self.envs}: a '
                f'full batch could never form. Lower it, or leave it at -1 to have it '
                f'chosen.'
            )
        if self.transport not in TRANSPORTS:
            raise ConfigError(
                f"run.transport='{self.transport}' does not exist. Choose one of "
                f'{", ".join(TRANSPORTS)}.'
            )
