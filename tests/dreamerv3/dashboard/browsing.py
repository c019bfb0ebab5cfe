"""A real Chromium on a real dashboard, which complains about every complaint of it."""

import io
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import Browser, Page, Route, expect, sync_playwright

NAMES = ('chromium', 'chromium-browser', 'google-chrome')
CHROMIUM = next((path for name in NAMES if (path := shutil.which(name))), None)
PICTURES = Path(__file__).parents[3] / 'build' / 'screenshots'
MOMENTS = 60_000  # milliseconds that a busy machine may take to show a change
DESK, PHONE = {'width': 1440, 'height': 900}, {'width': 390, 'height': 844}
LOOKS: dict[str, Any] = {
    'light': {'viewport': DESK, 'color_scheme': 'light'},
    'dark': {'viewport': DESK, 'color_scheme': 'dark'},
    'phone': {
        'viewport': PHONE,
        'color_scheme': 'light',
        'device_scale_factor': 2,
        'has_touch': True,
    },
}


@contextmanager
def browser() -> Iterator[Browser]:
    """A Chromium without a window."""
    # Its sandbox refuses to work for root, which is who tests are in containers.
    flags = ['--no-sandbox'] if os.geteuid() == 0 else []
    expect.set_options(timeout=MOMENTS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield browser
        browser.close()


class Visit:
    """A page with all that went wrong on it."""

    def __init__(self, page: Page, url: str, hold: Callable[[Route], None] | None):
        self.page = page
        self.url = url
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on('console', self._hear)
        page.on('pageerror', lambda error: self.complaints.append(str(error)))
        page.on('dialog', lambda dialog: self.complaints.append(dialog.message))
        page.on('request', lambda request: self.requests.append(request.url))
        if hold:
            page.route('**/api/series*', hold)
        page.goto(url)

    def _hear(self, message) -> None:
        if message.type in ('error', 'warning'):
            self.complaints.append(message.text)

    def picture(self, name: str) -> None:
        """Keeps a screenshot for people to look at."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=PICTURES / f'{name}.png')

    def open(self, tab: str) -> None:
        self.page.get_by_role('tab', name=tab).click()

    def pick(self, *names: str) -> None:
        """Chooses exactly these runs."""
        self.page.get_by_role('button', name='None', exact=True).click()
        for name in names:
            self.page.locator('.run', has_text=name).locator('input').check()

    def smooth(self, weight: float) -> None:
        """Moves the slider of the smoothing."""
        self.page.get_by_label('Smoothing').fill(str(weight))

    def pixels(self, metric: str, color: str, within: int = 40) -> int:
        """How many pixels of a chart are nearly of this color, given as #rrggbb."""
        plot = self.page.locator(f'[data-metric="{metric}"] .plot').first
        picture = Image.open(io.BytesIO(plot.screenshot())).convert('RGB')
        wanted = [int(color[i : i + 2], 16) for i in (1, 3, 5)]
        distance = np.abs(np.asarray(picture, np.int32) - wanted).max(-1)
        return int((distance < within).sum())


@contextmanager
def visit(
    browser: Browser,
    url: str,
    look: str = 'light',
    hold: Callable[[Route], None] | None = None,
) -> Iterator[Visit]:
    """A page that must have asked only its own server and complained about nothing.

    hold: gets the requests for series, and decides when they are answered.
    """
    context = browser.new_context(**LOOKS[look])
    found = Visit(context.new_page(), url, hold)
    yield found
    context.close()
    assert found.complaints == []
    assert [url for url in found.requests if not url.startswith(found.url)] == []
