import subprocess

import elements
import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image

from embodied.logging import Logger
from embodied.logging.pictures import frames, strip
from embodied.logging.video import VideoOutput


def write(folder, step, kind='gif', **metrics):
    output = VideoOutput(folder, fps=10, keep=2, kind=kind)
    logger = Logger(elements.Counter(step), [output])
    logger.add(metrics, prefix='report')
    logger.close()


def video(length=4, channels=3, dtype=np.uint8):
    shades = np.arange(length)[:, None, None, None] * np.ones((1, 64, 128, channels))
    return (shades * 40).astype(dtype) if dtype == np.uint8 else shades / length


def test_video_becomes_a_gif_and_a_strip_with_its_frames(tmp_path):
    write(tmp_path, 7, openloop=video(), loss=1.0, text='hi')
    names = sorted(p.name for p in (tmp_path / 'videos').iterdir())
    stem = 'report_openloop-000000000007'
    assert names == [f'{stem}.gif', f'{stem}.png']
    with Image.open(tmp_path / 'videos' / f'{stem}.gif') as gif:
        assert (gif.n_frames, gif.info['duration'], gif.size) == (4, 100, (256, 128))
    with Image.open(tmp_path / 'videos' / f'{stem}.png') as png:
        # Four frames of 256 pixels with three gaps of 2.
        assert png.size == (4 * 256 + 3 * 2, 128)
        colors = [png.getpixel((258 * i + 9, 9)) for i in range(4)]
    assert colors == [(0, 0, 0), (40, 40, 40), (80, 80, 80), (120, 120, 120)]


def test_video_becomes_an_mp4_of_even_size_with_its_frames(tmp_path):
    odd = video()[:, :61, :119]
    write(tmp_path, 7, 'mp4', openloop=odd)
    stem = tmp_path / 'videos' / 'report_openloop-000000000007'
    assert stem.with_suffix('.png').exists()
    width, height = 3 * 119 + 1, 3 * 61 + 1
    ffmpeg = [imageio_ffmpeg.get_ffmpeg_exe(), '-i', str(stem.with_suffix('.mp4'))]
    raw = ['-f', 'rawvideo', '-pix_fmt', 'rgb24', '-']
    result = subprocess.run([*ffmpeg, *raw], capture_output=True, check=True)
    assert '10 fps' in result.stderr.decode()
    shades = np.frombuffer(result.stdout, np.uint8).reshape(-1, height, width, 3)
    assert shades[:, 30, 30, 0] == pytest.approx([0, 40, 80, 120], abs=3)


def test_image_becomes_a_png_only(tmp_path):
    write(tmp_path, 3, picture=video()[2])
    (path,) = (tmp_path / 'videos').iterdir()
    assert path.name == 'report_picture-000000000003.png'


def test_newest_files_of_each_name_are_kept(tmp_path):
    for step in (1, 2, 3):
        write(tmp_path, step, a=video(2), b=video(2)[0])
    names = sorted(p.name for p in (tmp_path / 'videos').iterdir())
    steps = ['000000000002', '000000000003']
    assert names == [
        *(f'report_a-{step}.{suffix}' for step in steps for suffix in ('gif', 'png')),
        *(f'report_b-{step}.png' for step in steps),
    ]


@pytest.mark.parametrize('channels', [1, 2, 3, 4])
@pytest.mark.parametrize('dtype', [np.uint8, np.float32])
def test_all_channels_and_dtypes_can_be_seen(channels, dtype):
    pictures = frames(video(4, channels, dtype))
    expected = 80 if dtype == np.uint8 else round(255 * 2 / 4)
    pixel = pictures[2].convert('RGB').getpixel((5, 5))
    assert pixel == pytest.approx((expected,) * 3, abs=1)


def test_long_video_gives_a_strip_from_first_to_last():
    image = strip(frames(video(7)), count=3)
    pixels = [image.getpixel((258 * i + 9, 9))[0] for i in range(3)]
    assert pixels == [0, 120, 240]
