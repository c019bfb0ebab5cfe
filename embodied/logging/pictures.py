"""Pictures: arrays as images, as strips of frames and as GIF or MP4 files."""

import io
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from ..core.errors import MissingExtraError

__all__ = [
    'VIDEO_FORMATS',
    'check_format',
    'encode_gif',
    'encode_png',
    'frames',
    'strip',
    'write_video',
]

VIDEO_FORMATS = ('gif', 'mp4')
STRIP_FRAMES = 8  # pictures in a strip
SMALLEST_SIDE = 128  # pixels; smaller pictures are enlarged to be seen at all
GAP = 2  # pixels between the pictures of a strip


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


def write_video(path: Path, pictures: Sequence[Image.Image], fps: int) -> None:
    """Writes a GIF or MP4, by the suffix; who looks there sees a whole file or none."""
    temporary = path.with_name(f'.{path.name}')
    check_format(path.suffix[1:])
    if path.suffix == '.mp4':
        _write_mp4(temporary, pictures, fps)
    else:
        temporary.write_bytes(encode_gif(pictures, fps))
    temporary.replace(path)


def encode_gif(pictures: Sequence[Image.Image], fps: int) -> bytes:
    """Content of a GIF file that plays for ever."""
    first, *rest = pictures
    buffer = io.BytesIO()
    first.save(
        buffer,
        format='gif',
        save_all=True,
        append_images=rest,
        duration=round(1000 / fps),
        loop=0,
    )
    return buffer.getvalue()


def encode_png(picture: Image.Image) -> bytes:
    """Content of a PNG file."""
    buffer = io.BytesIO()
    picture.save(buffer, format='png')
    return buffer.getvalue()


def check_format(name: str) -> None:
    """Raises if videos of this kind cannot be written here."""
    assert name in VIDEO_FORMATS, name
    if name == 'mp4':
        _ffmpeg()


def _write_mp4(path: Path, pictures: Sequence[Image.Image], fps: int) -> None:
    width, height = (side + side % 2 for side in pictures[0].size)
    raw = ['-f', 'rawvideo', '-pix_fmt', 'rgb24', '-s', f'{width}x{height}']
    coded = ['-c:v', 'libx264', '-pix_fmt', 'yuv420p', '-movflags', '+faststart']
    process = subprocess.run(
        [_ffmpeg(), '-loglevel', 'error', '-y', *raw, '-r', str(fps), '-i', '-']
        + [*coded, '-f', 'mp4', str(path)],
        input=b''.join(_even(x, width, height).tobytes() for x in pictures),
        capture_output=True,
    )
    if process.returncode:
        raise OSError(f'ffmpeg failed: {process.stderr.decode(errors="replace")}')


def _even(picture: Image.Image, width: int, height: int) -> Image.Image:
    """H.264 wants even sides."""
    canvas = Image.new('RGB', (width, height))
    canvas.paste(picture)
    return canvas


def _ffmpeg() -> str:
    """Path of the program."""
    try:
        import imageio_ffmpeg
    except ImportError as error:
        raise MissingExtraError(
            "Videos as mp4 need: pip install 'dreamer-parallel[video]'. "
            'Without it: --logger.video gif.'
        ) from error
    # Only for the program that it brings: its own functions poll.
    return imageio_ffmpeg.get_ffmpeg_exe()
