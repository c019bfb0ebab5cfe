"""TensorBoard output: scalars, histograms, texts, images, videos as moving GIFs, the
options of the run, and a point for each episode.

tensorboard --logdir LOGDIR
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tensorboardX import SummaryWriter
from tensorboardX.proto.summary_pb2 import Summary

from .logger import Entry, Episode, scalars
from .pictures import encode_gif, encode_png, frames

__all__ = ['TensorBoardOutput']

OPTIONS = 'options'  # tag of their text
CODE = ' ' * 4  # begins a line that Markdown is to leave as it is


class TensorBoardOutput:
    """Writes event files into LOGDIR/tensorboard, from a thread of its own.

    options: those of the run, by name. Each start of the run has files of its own, and
    begins them with its options.
    """

    def __init__(
        self,
        logdir: str | os.PathLike,
        fps: int = 15,
        options: Mapping[str, Any] | None = None,
    ):
        self._fps = fps
        self._writer = SummaryWriter(str(Path(logdir) / 'tensorboard'))
        if options:
            lines = [f'{CODE}{name}: {value}' for name, value in options.items()]
            self._writer.add_text(OPTIONS, '\n'.join(lines))

    def __call__(self, entries: Sequence[Entry]) -> None:
        newest = max(step for step, _, _ in entries)
        for name, number in scalars(entries).items():
            self._writer.add_scalar(name, number, newest)
        for step, name, value in entries:
            if isinstance(value, str):
                self._writer.add_text(name, value, step)
            elif value.ndim == 1 and value.size:
                finite = value[np.isfinite(value)]
                self._writer.add_histogram(name, finite, step)
            elif value.ndim >= 3 and value.size:
                self._add_picture(name, value, step)
        self._writer.flush()

    def add_episodes(self, episodes: Sequence[Episode]) -> None:
        """A point of the charts scores/... at the step of each of these episodes."""
        for episode in episodes:
            kind = 'scores/eval' if episode.is_eval else 'scores'
            self._writer.add_scalar(f'{kind}/score', episode.score, episode.step)
            self._writer.add_scalar(f'{kind}/length', episode.length, episode.step)

    def close(self) -> None:
        self._writer.close()

    def _add_picture(self, name: str, value: np.ndarray, step: int) -> None:
        """Images are shown by the browser, which knows moving GIFs."""
        pictures = frames(value)
        is_video = value.ndim == 4
        data = encode_gif(pictures, self._fps) if is_video else encode_png(pictures[0])
        width, height = pictures[0].size
        image = Summary.Image(
            width=width, height=height, colorspace=3, encoded_image_string=data
        )
        summary = Summary(value=[Summary.Value(tag=name, image=image)])
        self._writer.file_writer.add_summary(summary, step)
