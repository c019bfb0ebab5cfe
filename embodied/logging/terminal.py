"""What a person sees of a run: a live view on a terminal, plain lines in a pipe."""

import atexit
import collections
import math
import time
from collections.abc import Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from . import charts
from .logger import Entry, scalars

__all__ = ['Figures', 'TerminalOutput']

WINDOW = 6  # newest writes over which scores and speeds are averaged
SCORE = 'episode/score'
SHOWN = {  # metric: name in the view, format, writes to average
    SCORE: ('score', '{:.4g}', WINDOW),
    'eval/score': ('eval score', '{:.4g}', 1),
    'fps/env': ('env steps/s', '{:,.0f}', WINDOW),
    'fps/train': ('updates/s', '{:.3g}', WINDOW),
    'replay/steps': ('replay', '{:,.0f}', 1),
}

ENDLESS = 10**10  # steps of a run that is meant to go on until somebody stops it
FAR = 100 * 86_400.0  # seconds; a time left beyond this says nothing
SPARK_WIDTH = 32
WIDTH = 78
CURVE_WIDTH = 54
CURVE_HEIGHT = 8


class Figures:
    """The figures of a run that a view shows, gathered from the metrics."""

    def __init__(self, steps: float = math.inf, duration: float = 0.0):
        self.steps = steps
        self.duration = duration
        self.step = 0
        self.series: dict[str, list[float]] = {}
        self._begin = time.monotonic()
        self._marks: collections.deque = collections.deque(maxlen=WINDOW + 1)

    def update(self, entries: Sequence[Entry]) -> None:
        self.step = max(step for step, _, _ in entries)
        found = scalars(entries)
        for name in SHOWN:
            if name in found:
                self.series.setdefault(name, []).append(found[name])
        self._marks.append((time.monotonic(), self.step))

    @property
    def scores(self) -> list[float]:
        return self.series.get(SCORE, [])

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._begin

    @property
    def fraction(self) -> float:
        """Share of the run that is done, by whichever limit comes first."""
        by_time = self.elapsed / self.duration if self.duration else 0.0
        return min(1.0, max(self.step / self.steps, by_time))

    @property
    def left(self) -> float:
        """Seconds to the end of the run, inf if that cannot be told."""
        by_time = self.duration - self.elapsed if self.duration else math.inf
        by_steps = math.inf
        if len(self._marks) > 1:
            (time1, step1), (time2, step2) = self._marks[0], self._marks[-1]
            if step2 > step1:
                speed = (step2 - step1) / (time2 - time1)
                by_steps = (self.steps - self.step) / speed
        return max(0.0, min(by_time, by_steps))

    def pairs(self) -> list[tuple[str, str]]:
        """Pairs of name and text, those that are known."""
        pairs = []
        for name, (label, form, window) in SHOWN.items():
            if values := self.series.get(name, [])[-window:]:
                pairs.append((label, form.format(sum(values) / len(values))))
        pairs.append(('elapsed', charts.duration(self.elapsed)))
        if self.left < FAR:
            pairs.append(('left', charts.duration(self.left)))
        return pairs


class TerminalOutput:
    """Logger output for the console; nothing else prints there by default."""

    def __init__(
        self,
        title: str = '',
        steps: float = math.inf,
        duration: float = 0.0,
        levels: Mapping[str, float] | None = None,
        console: Console | None = None,
    ):
        """`levels` are scores by name; the live view draws the curve between them."""
        self._title = title
        self._levels = levels
        self._figures = Figures(steps, duration)
        # Rich leaves colors away by itself when NO_COLOR is set.
        self._console = console or Console(highlight=False)
        self._live: Live | None = None
        if self._console.is_terminal:
            self._live = Live(
                console=self._console,
                get_renderable=self._render,
                refresh_per_second=1,  # the clock of the view
            )
            self._live.start()
            # A run that fails before it closes its logger must not leave the
            # terminal without a cursor.
            atexit.register(self.close)

    def __call__(self, entries: Sequence[Entry]) -> None:
        self._figures.update(entries)
        if self._live:
            self._live.refresh()
        else:
            pairs = [('step', f'{self._figures.step:,}'), *self._figures.pairs()]
            line = '  '.join(f'{name} {text}' for name, text in pairs)
            self._console.print(line, soft_wrap=True)

    def close(self) -> None:
        if self._live:
            self._live.stop()
            self._live = None
            atexit.unregister(self.close)

    def _render(self) -> RenderableType:
        width = min(WIDTH, self._console.width)
        return Panel(
            Group(*self._rows()),
            title=Text(self._title, style='bold'),
            title_align='left',
            border_style='dim',
            width=width,
        )

    def _rows(self) -> list[RenderableType]:
        figures = self._figures
        rows: list[RenderableType] = []
        known = dict(figures.pairs())
        utf8 = self._console.encoding.startswith('utf')
        if self._levels and utf8:
            rows.append(_curve(figures, self._levels))
        if figures.duration or figures.steps < ENDLESS:
            rows.append(_bar(figures, known.pop('left', '')))
        if not figures.step:
            rows.append(Text('Starting: the first updates wait for compilation.'))
        score = known.pop('score', None)
        if score is not None:
            blocks = charts.BLOCKS if utf8 else charts.ASCII_BLOCKS
            spark = charts.sparkline(figures.scores, SPARK_WIDTH, blocks)
            rows.append(_score(score, '' if self._levels else spark))
        rows.append(_pairs(known))
        return rows


def _curve(figures: Figures, levels: Mapping[str, float]) -> Text:
    """The scores so far over the time of the whole run, with the levels' names."""
    low = min([*levels.values(), *figures.scores])
    high = max([*levels.values(), *figures.scores])
    columns = max(1, round(CURVE_WIDTH * figures.fraction))
    values = charts.resample(figures.scores, columns, stretch=True)
    lines = charts.chart(values, CURVE_HEIGHT, low, high)
    labels = dict.fromkeys(range(CURVE_HEIGHT), '')
    for name, level in levels.items():
        above = int((level - low) / (high - low) * CURVE_HEIGHT)
        labels[CURVE_HEIGHT - 1 - min(above, CURVE_HEIGHT - 1)] = f'{level:g} {name}'
    text = Text()
    for row, line in enumerate(lines):
        text.append(line.ljust(CURVE_WIDTH), 'green')
        text.append(f' {labels[row]}\n', 'dim')
    return text


def _score(score: str, spark: str) -> Text:
    return Text.assemble(
        ('score ', 'dim'), (score, 'bold green'), '  ', (spark, 'green')
    )


def _bar(figures: Figures, left: str) -> RenderableType:
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(ratio=1)
    table.add_column(justify='right', no_wrap=True)
    end = f' / {figures.steps:,.0f}' if figures.steps < ENDLESS else ''
    label = f'{figures.fraction:4.0%}  step {figures.step:,}{end}'
    if left:
        label += f'  {left} left'
    table.add_row(ProgressBar(total=1.0, completed=figures.fraction), Text(label))
    return table


def _pairs(known: dict[str, str]) -> Text:
    text = Text()
    for name, value in known.items():
        text.append('   ' if text else '').append(f'{name} ', 'dim').append(value)
    return text
