"""TensorBoard output: scalars, histograms, texts, images, and videos as moving GIFs.

tensorboard --logdir LOGDIR
"""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tensorboardX import SummaryWriter
from tensorboardX.proto.summary_pb2 import Summary

from .logger import Entry, scalars
from .pictures import encode_gif, encode_png, frames

__all__ = ['TensorBoardOutput']


class TensorBoardOutput:
    """Writes event files into LOGDIR/tensorboard, from a thread of its own."""

    def __init__(self, logdir: str | os.PathLike, fps: int = 15):
        self._fps = fps
        self._writer = SummaryWriter(str(Path(logdir) / 'tensorboard'))

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
