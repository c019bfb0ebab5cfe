"""Weights & Biases output: scalars, histograms, texts, images and videos.

LOGDIR/wandb/      what it keeps on this machine; `wandb sync` uploads an offline run
LOGDIR/wandb-id    id under which a resumed run is continued
"""

import os
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import wandb

from ..core.files import write_whole
from .logger import Entry, scalars
from .pictures import frames, write_video

__all__ = ['WandbOutput']

STEP = 'env_step'  # the axis of all curves
ID_BYTES = 4
BINS = 64  # of a histogram
START_SECONDS = 30.0  # for the server of wandb to answer


class WandbOutput:
    """mode: online or offline. config: the options of the run, by name.

    entity: team or user that the run belongs to. name: of the run, '' that of its
    folder. group, tags: what it is found by among others. What is left empty is up to
    W&B, which also looks at environment variables such as WANDB_ENTITY.
    """

    def __init__(
        self,
        logdir: str | os.PathLike,
        project: str,
        mode: Literal['online', 'offline'] = 'online',
        config: Mapping[str, Any] | None = None,
        fps: int = 15,
        entity: str = '',
        name: str = '',
        group: str = '',
        tags: Sequence[str] = (),
    ):
        logdir = Path(logdir)
        logdir.mkdir(parents=True, exist_ok=True)
        self._fps = fps
        self._films = tempfile.TemporaryDirectory(prefix='dreamer-wandb-')
        self._run = wandb.init(
            project=project,
            entity=entity or None,
            name=name or logdir.name,
            group=group or None,
            tags=list(tags) or None,
            id=_run_id(logdir / 'wandb-id'),
            resume='allow',
            dir=str(logdir),
            mode=mode,
            config=dict(config or {}),
            # wandb must neither print nor capture what is printed.
            settings=wandb.Settings(
                silent=True, console='off', init_timeout=START_SECONDS
            ),
        )
        # Its own step may not go back, ours does after a crash.
        self._run.define_metric('*', step_metric=STEP)

    def __call__(self, entries: Sequence[Entry]) -> None:
        newest = max(step for step, _, _ in entries)
        values: dict[str, Any] = {STEP: newest, **scalars(entries)}
        for step, name, value in entries:
            if isinstance(value, str):
                values[name] = value
            elif value.ndim == 1 and value.size:
                finite = value[np.isfinite(value)]
                values[name] = wandb.Histogram(np_histogram=np.histogram(finite, BINS))
            elif value.ndim == 3 and value.size:
                values[name] = wandb.Image(frames(value)[0])
            elif value.ndim == 4 and value.size:
                # A file: for arrays it wants a package of its own.
                path = Path(self._films.name) / f'{abs(hash(name))}-{step}.gif'
                write_video(path, frames(value), self._fps)
                values[name] = wandb.Video(str(path), format='gif')
        self._run.log(values)

    def close(self) -> None:
        self._run.finish()
        self._films.cleanup()


def _run_id(path: Path) -> str:
    if not path.exists():
        write_whole(path, secrets.token_hex(ID_BYTES))
    return path.read_text().strip()
