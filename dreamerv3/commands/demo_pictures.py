"""Pictures of a finished run: the learning curve and the model's open-loop prediction.

Drawn with Pillow alone, so that they are there wherever the package is.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from embodied.logging.charts import resample

__all__ = ['draw_curve', 'draw_prediction']

SCALE = 2  # drawn larger and reduced, for smooth lines
SIZE = (800, 450)
MARGINS = (70, 30, 150, 60)  # left, top, right, bottom
POINTS, EPISODES = 50, 30  # of the curve at most, and episodes behind each at least
INK, GRID, LINE, BAND = '#333333', '#dddddd', '#1f7a3d', '#cfe8d6'
TICKS = 5

ROWS = ('truth', 'model', 'error')  # of an open-loop video
CELL = 56  # pixels per image in the prediction picture
LABELS = 60  # pixels for the names of the rows
CAPTION = 28  # pixels for the line above


def draw_curve(
    steps: Sequence[float],
    scores: Sequence[float],
    levels: Mapping[str, float],
    title: str,
) -> Image.Image:
    """Mean score over environment steps with a band of its standard error."""
    axes = _Axes(max(steps), min(levels.values()), max(levels.values()))
    points = min(POINTS, max(2, len(scores) // EPISODES), len(scores))
    parts = np.array_split(np.asarray(scores, np.float64), points)
    mean = np.array([part.mean() for part in parts])
    error = np.array([part.std() / math.sqrt(len(part)) for part in parts])
    x = resample(steps, points)
    band = [*zip(x, mean + error, strict=True)]
    band += reversed([*zip(x, mean - error, strict=True)])
    axes.draw.polygon([axes.at(*point) for point in band], fill=BAND)
    axes.frame(title, levels)
    curve = [axes.at(*point) for point in zip(x, mean, strict=True)]
    axes.draw.line(curve, fill=LINE, width=3 * SCALE, joint='curve')
    return axes.image.resize(SIZE, Image.Resampling.LANCZOS)


def draw_prediction(video: np.ndarray, sequences: int, shown: int) -> Image.Image:
    """Rows truth / model / error over time, of the first sequences in the video.

    video [T, 3 * h, N * w, 3]: green frames were seen, red ones are imagined.
    """
    total, height, width, _ = video.shape
    columns = width * len(ROWS) // height  # images are square
    chosen = np.linspace(0, total - 1, min(shown, total)).round().astype(int)
    sequences = min(sequences, columns)
    block = len(ROWS) * CELL + CELL // 2
    size = (LABELS + len(chosen) * CELL, CAPTION + sequences * block)
    canvas = Image.new('RGB', size, 'white')
    draw = ImageDraw.Draw(canvas)
    caption = 'green: the model sees the truth    red: it imagines what comes next'
    draw.text((LABELS, CAPTION // 2), caption, INK, _font(14), anchor='lm')
    for number in range(sequences):
        for row, name in enumerate(ROWS):
            top = CAPTION + number * block + row * CELL
            draw.text((4, top + CELL // 2), name, INK, _font(14), anchor='lm')
            for column, time in enumerate(chosen):
                cell = _cell(video[time], row, number, columns)
                canvas.paste(cell, (LABELS + column * CELL, top))
    return canvas


def _cell(frame: np.ndarray, row: int, column: int, columns: int) -> Image.Image:
    height, width = frame.shape[0] // len(ROWS), frame.shape[1] // columns
    pixels = frame[row * height :, column * width :][:height, :width]
    return Image.fromarray(pixels).resize((CELL, CELL), Image.Resampling.NEAREST)


class _Axes:
    """A plot area with a frame; `at` turns values into pixels."""

    def __init__(self, right: float, low: float, high: float):
        space = 0.08 * (high - low)
        self.right, self.low, self.high = right, low - space, high + space
        self.image = Image.new('RGB', (SIZE[0] * SCALE, SIZE[1] * SCALE), 'white')
        self.draw = ImageDraw.Draw(self.image)

    def at(self, x: float, y: float) -> tuple[float, float]:
        left, top, right, bottom = MARGINS
        width, height = SIZE[0] - left - right, SIZE[1] - top - bottom
        y = min(max(y, self.low), self.high)
        across = left + x / self.right * width
        down = top + (self.high - y) / (self.high - self.low) * height
        return across * SCALE, down * SCALE

    def frame(self, title: str, levels: Mapping[str, float]) -> None:
        self.text(MARGINS[0], MARGINS[1] / 2, title, 'lm')
        middle = (SIZE[0] - MARGINS[2] + MARGINS[0]) / 2
        self.text(middle, SIZE[1] - 18, 'environment steps', 'mm')
        for tick in _ticks(0, self.right):
            x, y = self.at(tick, self.low)
            self.draw.line([self.at(tick, self.high), (x, y)], GRID, SCALE)
            self.text(x / SCALE, y / SCALE + 14, f'{tick:,.0f}', 'mm')
        for tick in _ticks(self.low, self.high):
            x, y = self.at(0, tick)
            self.draw.line([(x, y), self.at(self.right, tick)], GRID, SCALE)
            self.text(x / SCALE - 8, y / SCALE, f'{tick:g}', 'rm')
        for name, level in levels.items():
            x, y = self.at(self.right, level)
            self.draw.line([self.at(0, level), (x, y)], INK, SCALE)
            self.text(x / SCALE + 8, y / SCALE, f'{name} {level:g}', 'lm')

    def text(self, x: float, y: float, text: str, anchor: str) -> None:
        font = _font(13 * SCALE)
        self.draw.text((x * SCALE, y * SCALE), text, INK, font, anchor=anchor)


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers between low and high."""
    rough = (high - low) / TICKS
    power = 10 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough)
    first, last = math.ceil(low / step), math.floor(high / step)
    return [round(number * step, 10) for number in range(first, last + 1)]


def _font(size: int) -> ImageFont.ImageFont | ImageFont.FreeTypeFont:
    return ImageFont.load_default(size)
