"""Training from Python: `dreamerv3.train` and the run that it returns."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import elements
import numpy as np

from embodied.core.errors import ConfigError
from embodied.envs.adapters import own
from embodied.logging import EVENTS, read_records, read_scores
from embodied.run.shared.log_callback import OnLog, StopRun
from embodied.run.shared.outcome import DONE, Outcome

from .. import config as config_lib
from .. import main
from .. import run_folder as folder

__all__ = ['Run', 'StopRun', 'train']

FACTORY = 'make_env.pkl'  # in the folder of the run


class Run:
    """A run in its folder: what `dreamerv3.train` returns, also of earlier runs."""

    def __init__(self, logdir: str | Path) -> None:
        self.logdir = Path(logdir)

    @property
    def config(self) -> elements.Config:
        """The options that the run was started with."""
        return elements.Config.load(self.logdir / 'config.yaml')

    @property
    def outcome(self) -> Outcome | None:
        """How the run has ended: state and reason. None if it goes on, or was killed
        before it could say so."""
        events = read_records(self.logdir / EVENTS)
        ends = [x for x in events if x['event'] in ('start', 'resume', 'stop')]
        if not ends or ends[-1]['event'] != 'stop':
            return None
        # Version 0.1.0 gave no reason.
        return Outcome(ends[-1].get('state', DONE), ends[-1].get('reason', ''))

    @property
    def episodes(self) -> list[dict[str, Any]]:
        """Training episodes: step, time, env, score, length."""
        return [record for record in read_scores(self.logdir) if not record['eval']]

    @property
    def scores(self) -> np.ndarray:
        """Scores of the training episodes, [N], in the order of their ends."""
        return np.array([episode['score'] for episode in self.episodes])

    @property
    def steps(self) -> int:
        """Environment steps so far."""
        records = read_records(self.logdir / 'metrics.jsonl')
        return records[-1]['step'] if records else 0

    def metric(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Steps and values of a metric, such as `train/loss/image`."""
        records = read_records(self.logdir / 'metrics.jsonl')
        pairs = [(r['step'], r[name]) for r in records if r.get(name) is not None]
        if not pairs:
            names = sorted({key for record in records for key in record})
            raise ConfigError(f'There is no metric {name!r}. There are: {names}.')
        steps, values = zip(*pairs, strict=True)
        return np.array(steps), np.array(values)

    def agent(self, trust: bool = False) -> Any:
        """The trained agent, as `dreamerv3.load` gives it."""
        import dreamerv3

        return dreamerv3.load(self.logdir, trust=trust)

    def __repr__(self) -> str:
        return f'Run({str(self.logdir)!r})'


def train(
    make_env: Callable[..., Any] | None = None,
    logdir: str | Path | None = None,
    steps: float | None = None,
    *,
    task: str | None = None,
    configs: Sequence[str] = (),
    script: str = 'train',
    options: Mapping[str, Any] | None = None,
    on_log: OnLog | None = None,
) -> Run:
    """Trains an agent until `steps` environment steps; the same call continues it.

    make_env() or make_env(seed=...) returns an environment: of Gymnasium, of dm_env or
    an `embodied.Env`. It is called in other processes, too. Instead of it, `task` may
    name one as on the command line.

    configs: presets such as ['size12m']. script: `train` in one process with one
    process per environment, or `parallel`. options: any other, by full name, as in
    {'run.envs': 4}.

    on_log(step, metrics) is called with the numbers of each log by name, as they are in
    metrics.jsonl. It may end the run, with a last save: by returning True, by raising
    `StopRun`, or by any other exception, which is raised here then. The script
    `parallel` calls it in a thread of this process; the others wait for it.
    """
    if (make_env is None) == (task is None):
        raise ConfigError('dreamerv3.train needs either make_env=... or task=...')
    given: dict[str, Any] = {'script': script, **(options or {})}
    if steps is not None:
        given['run.steps'] = steps
    if logdir is not None:
        given['logdir'] = logdir
    if task is not None:
        given['task'] = task
    flags = ['--configs', *configs] if configs else []
    config, _ = config_lib.resolve([*flags, *(f'--{k}={v}' for k, v in given.items())])
    name = task or getattr(make_env, '__name__', 'env').strip('<>')
    config = config.update(logdir=folder.expand(config.logdir, name))
    if make_env is not None:
        path = Path(config.logdir) / FACTORY
        config = config.update(task=own.save(make_env, path))
    main.run(config, on_log)
    return Run(config.logdir)
