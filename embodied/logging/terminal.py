"""View of a run: live on a terminal or in a notebook, plain lines in a pipe."""

import atexit
import math
import threading
from collections.abc import Callable, Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from . import charts
from .figures import ENDLESS, Figures
from .logger import Entry
from .notebook import NotebookDisplay

__all__ = ['TerminalOutput']

SPARK_WIDTH = 32
WIDTH = 78
FRAME = 4  # columns of the panel's border
GAP = '   '  # between two pairs
PAUSE, LONGEST_PAUSE = 2.0, 60.0  # seconds between two notices of what takes long
CURVE_WIDTH = 54
CURVE_HEIGHT = 8


class TerminalOutput:
    """Logger output for the console or the cell of a notebook."""

    def __init__(
        self,
        title: str = '',
        steps: float = math.inf,
        duration: float = 0.0,
        levels: Mapping[str, float] | None = None,
        console: Console | None = None,
        ratio: float = 0.0,
        restarts: Callable[[], int] = lambda: 0,
        doing: Callable[[], str] = str,
        hardware: Callable[[], str] = str,
    ):
        """`levels` are scores by name; the live view draws the curve between them.

        hardware: what the agent trains on, in words, '' if it is not known yet. The
        others are as for Figures.
        """
        self._title = title
        self._levels = levels
        self._lock = threading.Lock()  # of the figures: views have threads of their own
        self._hardware = hardware
        self._notices: _Notices | None = None
        self._figures = Figures(steps, duration, ratio, restarts, doing)
        # Rich leaves colors away by itself when NO_COLOR is set.
        self._console = console or Console(highlight=False)
        self._live: Live | None = None
        self._notebook = NotebookDisplay() if self._console.is_jupyter else None
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
        else:
            say, longest = self._say, LONGEST_PAUSE
            if self._notebook:
                say, longest = lambda line: self._show(), PAUSE
            doing = lambda: self._figures.doing()
            self._notices = _Notices(say, hardware, doing, longest)

    def __call__(self, entries: Sequence[Entry]) -> None:
        with self._lock:
            self._figures.update(entries)
        if self._live:
            self._live.refresh()
        elif self._notebook:
            self._show()
        else:
            self._say(self._line())

    def close(self) -> None:
        if self._live:
            self._live.stop()
            self._live = None
            atexit.unregister(self.close)
        if self._notices:
            self._notices.close()
            self._notices = None

    def watch(self, doing: Callable[[], str]) -> None:
        """Shows what `doing` says takes long, from now on."""
        self._figures.doing = doing

    def _show(self) -> None:
        assert self._notebook
        self._notebook.show(self._render(), self._width)

    def _say(self, line: str) -> None:
        self._console.print(line, soft_wrap=True, markup=False)

    @property
    def _width(self) -> int:
        return min(WIDTH, self._console.width)

    def _line(self) -> str:
        pairs = [('step', f'{self._figures.step:,}'), *self._figures.pairs()]
        line = '  '.join(f'{name} {text}' for name, text in pairs)
        bottleneck, doing = self._figures.bottleneck, self._figures.doing()
        parts = [line, bottleneck.name if bottleneck else '', doing]
        return '  '.join(part for part in parts if part)

    def _render(self) -> RenderableType:
        with self._lock:
            rows = self._rows()
        return Panel(
            Group(*rows),
            title=Text(self._title, style='bold'),
            title_align='left',
            subtitle=Text(self._trains_on(), style='dim'),
            subtitle_align='left',
            border_style='dim',
            width=self._width,
        )

    def _trains_on(self) -> str:
        hardware = self._hardware()
        return f'on {hardware}' if hardware else ''

    def _rows(self) -> list[RenderableType]:
        figures = self._figures
        rows: list[RenderableType] = []
        known = dict(figures.pairs())
        utf8 = self._console.encoding.startswith('utf')
        if self._levels and utf8:
            rows.append(_curve(figures, self._levels))
        if figures.duration or figures.steps < ENDLESS:
            rows.append(_bar(figures, known.pop('left', '')))
        if doing := figures.doing():
            rows.append(Text(doing))
        elif not figures.step:
            rows.append(Text('Starting: the first updates wait for compilation.'))
        score = known.pop('score', None)
        if score is not None:
            blocks = charts.BLOCKS if utf8 else charts.ASCII_BLOCKS
            spark = charts.sparkline(figures.scores, SPARK_WIDTH, blocks)
            rows.append(_score(score, '' if self._levels else spark))
        rows.append(_pairs(known, self._width - FRAME))
        if figures.bottleneck:
            name, reason = figures.bottleneck
            rows.append(Text.assemble((name, 'bold'), f': {reason}'))
        return rows


class _Notices:
    """Says what takes long, and once what the hardware is.

    Nothing is logged before the first programs are compiled. A thread is the clock of
    this view, as that of rich is for the live one; its pauses double as long as
    something lasts.

    longest: the longest of these pauses in seconds.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        hardware: Callable[[], str],
        doing: Callable[[], str],
        longest: float,
    ):
        self._longest = longest
        self._say, self._hardware, self._doing = say, hardware, doing
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name='notices', daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        pause, told = PAUSE, False
        while not self._over.wait(pause):
            if not told and (hardware := self._hardware()):
                told = True
                self._say(f'Training on {hardware}.')
            doing = self._doing()
            if doing:
                self._say(doing[0].upper() + doing[1:])
            pause = min(2 * pause, self._longest) if doing else PAUSE


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


def _pairs(known: Mapping[str, str], width: int) -> Text:
    """Lines of at most `width` characters that are not broken within a pair."""
    text, used = Text(), 0
    for name, value in known.items():
        size = len(name) + 1 + len(value)
        if used and used + len(GAP) + size > width:
            text.append('\n')
            used = 0
        elif used:
            text.append(GAP)
            used += len(GAP)
        text.append(f'{name} ', 'dim').append(value)
        used += size
    return text
