"""Logger output for pictures: videos with a strip of their frames, and images.

videos/<name>-<step>.gif   the video, or .mp4
videos/<name>-<step>.png   some of its frames side by side, or the image
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from .logger import Entry
from .pictures import VIDEO_FORMATS, check_format, frames, strip, write_video

__all__ = ['VideoOutput', 'video_path']

SUFFIXES = ('png', *VIDEO_FORMATS)


class VideoOutput:
    """Keeps the newest `keep` files of each picture and video; kind: gif or mp4."""

    def __init__(
        self,
        logdir: str | os.PathLike,
        fps: int = 15,
        keep: int = 5,
        kind: str = 'gif',
    ):
        check_format(kind)
        self._logdir = Path(logdir)
        self._fps = fps
        self._keep = keep
        self._kind = kind

    def __call__(self, entries: Sequence[Entry]) -> None:
        for step, name, value in entries:
            if isinstance(value, str) or value.ndim not in (3, 4) or not value.size:
                continue
            path = video_path(self._logdir, name, step, 'png')
            path.parent.mkdir(parents=True, exist_ok=True)
            pictures = frames(value)
            temporary = path.with_name(f'.{path.name}')
            strip(pictures).save(temporary, format='png')
            temporary.replace(path)
            if value.ndim == 4:
                write_video(path.with_suffix(f'.{self._kind}'), pictures, self._fps)
            self._prune(path)

    def _prune(self, newest: Path) -> None:
        stem = re.escape(newest.stem.rpartition('-')[0])
        for suffix in SUFFIXES:
            pattern = re.compile(rf'{stem}-\d{{12}}\.{suffix}')
            files = sorted(
                path for path in newest.parent.iterdir() if pattern.fullmatch(path.name)
            )
            for path in files[: -self._keep]:
                path.unlink()


def video_path(logdir: Path, name: str, step: int, suffix: str) -> Path:
    """Where the picture or video `name` of this step is kept."""
    stem = re.sub(r'[^A-Za-z0-9_-]+', '_', name)
    return logdir / 'videos' / f'{stem}-{step:012d}.{suffix}'
