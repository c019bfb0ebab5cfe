"""Pictures of a run: videos as GIF with a strip of frames as PNG, images as PNG.

videos/<name>-<step>.gif   the video
videos/<name>-<step>.png   some of its frames side by side, or the image
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from .logger import Entry

__all__ = ['VideoOutput', 'frames', 'strip']

STRIP_FRAMES = 8  # pictures in a strip
SMALLEST_SIDE = 128  # pixels; smaller pictures are enlarged to be seen at all
GAP = 2  # pixels between the pictures of a strip


class VideoOutput:
    """Logger output that keeps the newest `keep` files of each picture and video."""

    def __init__(self, logdir: str | os.PathLike, fps: int = 15, keep: int = 5):
        self._folder = Path(logdir) / 'videos'
        self._fps = fps
        self._keep = keep

    def __call__(self, entries: Sequence[Entry]) -> None:
        for step, name, value in entries:
            if isinstance(value, str) or value.ndim not in (3, 4) or not value.size:
                continue
            self._folder.mkdir(parents=True, exist_ok=True)
            stem = re.sub(r'[^A-Za-z0-9_-]+', '_', name)
            pictures = frames(value)
            self._write(f'{stem}-{step:012d}.png', strip(pictures))
            if value.ndim == 4:
                self._write(f'{stem}-{step:012d}.gif', *pictures)
            self._prune(stem)

    def _write(self, filename: str, first: Image.Image, *rest: Image.Image) -> None:
        path = self._folder / filename
        temporary = path.with_name(f'.{path.name}')
        options = {}
        if path.suffix == '.gif':
            milliseconds = round(1000 / self._fps)
            options = {'append_images': rest, 'duration': milliseconds, 'loop': 0}
            options['save_all'] = True
        first.save(temporary, format=path.suffix[1:], **options)
        temporary.replace(path)

    def _prune(self, stem: str) -> None:
        for suffix in ('gif', 'png'):
            pattern = re.compile(rf'{re.escape(stem)}-\d{{12}}\.{suffix}')
            files = sorted(
                p for p in self._folder.iterdir() if pattern.fullmatch(p.name)
            )
            for path in files[: -self._keep]:
                path.unlink()


def frames(video: np.ndarray) -> list[Image.Image]:
    """Pictures of a video [T, H, W, C] or image [H, W, C], large enough to see.

    uint8, or floats between 0 and 1. Any other number of channels than 1 and 3 is
    shown as their mean in gray.
    """
    if video.ndim == 3:
        video = video[None]
    if video.dtype != np.uint8:
        video = np.round(255 * np.clip(video, 0, 1)).astype(np.uint8)
    if video.shape[-1] == 3:
        modes = list(video)
    elif video.shape[-1] == 1:
        modes = list(video[..., 0])
    else:
        modes = list(video.mean(-1).astype(np.uint8))
    pictures = [Image.fromarray(frame) for frame in modes]
    factor = -(-SMALLEST_SIDE // min(video.shape[1:3]))
    size = (video.shape[2] * factor, video.shape[1] * factor)
    return [p.resize(size, Image.Resampling.NEAREST) for p in pictures]


def strip(pictures: Sequence[Image.Image], count: int = STRIP_FRAMES) -> Image.Image:
    """Up to `count` of the pictures, evenly spaced, side by side."""
    chosen = np.linspace(0, len(pictures) - 1, min(count, len(pictures)))
    chosen_pictures = [pictures[round(index)] for index in chosen]
    width, height = pictures[0].size
    total = len(chosen_pictures) * (width + GAP) - GAP
    canvas = Image.new('RGB', (total, height), 'white')
    for index, picture in enumerate(chosen_pictures):
        canvas.paste(picture, (index * (width + GAP), 0))
    return canvas
