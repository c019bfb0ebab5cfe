"""Makes the picture of the README from a run of the demo.

dreamer demo
python docs/_site/picture.py demo

The upper part is the dashboard as Chromium shows it, the lower part the prediction that
the demo draws: what the model imagines below what really happened.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).parents[1] / 'images'
SCREEN = {'width': 1280, 'height': 460}
MARGIN = 24  # pixels around the prediction
BROWSERS = ('/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome')


def main(folder: str = 'demo') -> None:
    runs = sorted(path for path in Path(folder).iterdir() if path.is_dir())
    if not runs:
        raise SystemExit(f'There is no run in {folder}: start `dreamer demo` first.')
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        screen = Path(temporary) / 'screen.png'
        photograph(runs[-1], screen)
        join(screen, runs[-1] / 'prediction.png', IMAGES / 'overview.png')


def photograph(run: Path, path: Path) -> None:
    """The dashboard of one run as a picture."""
    command = [sys.executable, '-m', 'dreamerv3', 'watch', str(run), '--port', '0']
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        url = server.stdout.readline().split()[-1]
        browser = next(x for x in BROWSERS if Path(x).exists())
        with sync_playwright() as playwright:
            chromium = playwright.chromium.launch(
                executable_path=browser, args=['--no-sandbox']
            )
            page = chromium.new_page(viewport=SCREEN)
            page.goto(url)
            page.get_by_text('scores/').first.wait_for()
            page.locator('canvas').first.wait_for()
            page.wait_for_load_state('load')
            page.screenshot(path=path)
            chromium.close()
        server.terminate()


def join(screen: Path, prediction: Path, path: Path) -> None:
    """Both pictures below each other, as wide as the screen."""
    with Image.open(screen) as above, Image.open(prediction) as below:
        width = above.width - 2 * MARGIN
        below = below.convert('RGB')
        below = below.resize((width, round(below.height * width / below.width)))
        height = above.height + below.height + 2 * MARGIN
        whole = Image.new('RGB', (above.width, height), 'white')
        whole.paste(above.convert('RGB'), (0, 0))
        whole.paste(below, (MARGIN, above.height + MARGIN))
        whole.save(path, optimize=True)


if __name__ == '__main__':
    main(*sys.argv[1:])
