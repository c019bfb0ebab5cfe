import io
import re
import threading

import elements
import numpy as np
import pytest
from pseudo_terminal import run_in_terminal
from rich.console import Console

from embodied.logging import Logger, terminal
from embodied.logging.figures import Figures
from embodied.logging.terminal import TerminalOutput

METRICS = {
    'episode/score': 0.75,
    'fps/env': 310.4,
    'fps/train': 8.25,
    'replay/steps': 1200,
    'train/loss/image': 3.0,
    'loop/envs': 0.1,
}

LIVE = """
import elements
from embodied.logging import Logger
from embodied.logging.terminal import TerminalOutput
step = elements.Counter()
view = TerminalOutput('toy_catch', steps=200, ratio=32.0, restarts=lambda: 2)
logger = Logger(step, [view])
for _ in range(2):
    step.increment(50)
    logger.add({'episode/score': 0.75, 'fps/env': 310.0, 'fps/train': 8.25})
    logger.add({'steps': 1200, 'gigabytes': 0.25, 'train_ratio': 31.5}, 'replay')
    logger.add({'learner/wait': 0.04, 'replay/insert_wait': 0.41})
    logger.write()
"""


def entries(step, **metrics):
    return [(step, name, np.asarray(value)) for name, value in metrics.items()]


def test_pipe_gets_one_plain_line_per_write():
    file = io.StringIO()
    output = TerminalOutput('toy_catch', steps=4000, console=Console(file=file))
    logger = Logger(elements.Counter(1000), [output])
    for _ in range(2):
        logger.add(METRICS)
        logger.write()
    logger.close()
    lines = file.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[0].startswith(
        'step 1,000  score 0.75  env steps/s 310  updates/s 8.25'
    )
    assert 'replay 1,200' in lines[0]
    assert 'restarts' not in lines[0]
    assert lines[0].endswith('agent-bound')
    assert 'loss' not in lines[0]
    assert lines[0].isascii()
    assert '\x1b' not in lines[0]


class Lines(io.StringIO):
    """A pipe whose reader waits until so many lines are there."""

    def __init__(self, count):
        super().__init__()
        self._missing, self.complete = count, threading.Event()

    def write(self, text):
        super().write(text)
        self._missing -= text.count('\n')
        if self._missing <= 0:
            self.complete.set()


def test_pipe_is_told_what_takes_long_before_anything_is_logged(monkeypatch):
    monkeypatch.setattr(terminal, 'PAUSE', 0.01)
    file = Lines(3)
    output = TerminalOutput(
        console=Console(file=file),
        doing=lambda: 'agent compiling train for 4 s.',
        hardware=lambda: 'the CPU (2 cores) in float32',
    )
    assert file.complete.wait(60)
    output.close()
    first, *others = file.getvalue().splitlines()
    assert first == 'Training on the CPU (2 cores) in float32.'
    assert set(others) == {'Agent compiling train for 4 s.'}


def test_lines_of_a_pipe_end_with_what_takes_long():
    file = io.StringIO()
    doing = lambda: 'agent compiling report for 9 s.'
    output = TerminalOutput(console=Console(file=file), doing=doing)
    output(entries(7, **{'fps/env': 3.0}))
    output.close()
    (line,) = file.getvalue().splitlines()
    assert line.startswith('step 7  ')
    assert line.endswith('  agent compiling report for 9 s.')


def test_what_a_logger_is_told_to_watch_is_shown(monkeypatch):
    monkeypatch.setattr(terminal, 'PAUSE', 0.01)
    file = Lines(1)
    logger = Logger(elements.Counter(), [TerminalOutput(console=Console(file=file))])
    logger.watch(lambda: 'compiling train, policy for 7 s')
    assert file.complete.wait(60)
    logger.close()
    assert file.getvalue().startswith('Compiling train, policy for 7 s\n')


def test_live_view_names_the_hardware():
    view = LIVE.replace('ratio=', "hardware=lambda: 'the CPU in float32', ratio=")
    text = run_in_terminal(['-c', view], NO_COLOR='1')
    assert ' on the CPU in float32 ' in text


def test_terminal_gets_a_live_view_and_its_cursor_back():
    text = run_in_terminal(['-c', LIVE], NO_COLOR='')
    plain = re.sub(r'\x1b\[[0-9;?]*[A-Za-z]', '', text)
    for part in ('toy_catch', ' 50%', 'step 100 / 200', '0.75', 'elapsed', '▁'):
        assert part in plain
    for part in ('env steps/s 310', 'updates/s 8.25', 'train ratio 31.5 of 32'):
        assert part in plain
    assert 'replay 1,200 (0.25 GB)' in plain
    assert 'restarts 2' in plain
    assert re.search(r'\d:\d\d left', plain)
    words = ' '.join(plain.replace('│', ' ').split())
    assert 'learner-bound: learner busy 96%; environments wait 41%' in words
    assert 'more environments will not help' in words
    assert '\x1b[1;32m' in text, 'a green score'
    # The logger is not closed, as when a run fails; the cursor is shown again.
    assert text.rindex('\x1b[?25h') > text.rindex('\x1b[?25l')


def test_no_color_is_respected():
    text = run_in_terminal(['-c', LIVE], NO_COLOR='1')
    assert 'toy_catch' in text
    colors = [
        f'\x1b[{weight}{color}m' for weight in ('', '1;') for color in range(30, 38)
    ]
    assert not any(color in text for color in colors)


def test_terminal_without_unicode_gets_ascii():
    text = run_in_terminal(['-c', LIVE], PYTHONIOENCODING='ascii', NO_COLOR='1')
    assert 'off from now on' not in text
    assert text.isascii()


def test_fraction_follows_whichever_limit_is_nearer():
    figures = Figures(steps=200)
    figures.update(entries(50, x=1.0))
    assert figures.fraction == 0.25
    figures = Figures(steps=1e10, duration=1e-9)
    figures.update(entries(50, x=1.0))
    assert figures.fraction == 1.0
    assert figures.left == 0.0


def test_speeds_are_averaged_and_sizes_are_the_newest():
    figures = Figures()
    for step, (speed, size) in enumerate(((10, 100), (30, 300)), 1):
        figures.update(entries(step, **{'fps/env': speed, 'replay/steps': size}))
    pairs = dict(figures.pairs())
    assert (pairs['env steps/s'], pairs['replay']) == ('20', '300')


def test_earlier_sessions_of_a_run_count():
    figures = Figures(duration=1000.0)
    figures.update(entries(50, **{'run/seconds': 600.0}))
    assert 600 <= figures.elapsed < 700
    assert 0.6 <= figures.fraction < 0.7
    assert 300 < figures.left <= 400


def test_elapsed_time_never_goes_back():
    figures = Figures(duration=1000.0)
    figures._begin -= 5.0  # The start of the run took so long.
    figures.update(entries(0, x=1.0))
    shown = figures.elapsed
    figures.update(entries(50, **{'run/seconds': 2.0}))
    assert figures.elapsed >= shown
    assert 900 < figures.left <= 998


def test_time_left_is_unknown_until_the_speed_is():
    figures = Figures(steps=200)
    figures.update(entries(50, x=1.0))
    assert figures.left == float('inf')
    assert 'left' not in dict(figures.pairs())
    figures.update(entries(100, x=1.0))
    spent = figures._marks[1][0] - figures._marks[0][0]
    # 50 steps took `spent` seconds, 100 are missing.
    assert figures.left == pytest.approx(2 * spent)
