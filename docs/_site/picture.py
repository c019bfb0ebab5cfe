"""Makes the pictures of the README and of docs/dashboard.md from runs of the demo.

dreamer demo
python docs/_site/picture.py demo

overview.png: above, the dashboard of the newest run as Chromium shows it; below, the
prediction that the demo draws: what the model imagines below what really happened.
dashboard.png: all runs in the folder.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).parents[1] / 'images'
WIDTH = 1280
PART, WHOLE = 460, 800  # heights of the two pictures of the dashboard
COLORS = 32  # of the dashboard: a fifth of the bytes, and lines keep their colors
MARGIN = 24  # pixels around the prediction
BROWSERS = ('/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome')


def main(folder: str = 'demo') -> None:
    runs = sorted(path for path in Path(folder).iterdir() if path.is_dir())
    if not runs:
        raise SystemExit(f'There is no run in {folder}: start `dreamer demo` first.')
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        screen = Path(temporary) / 'screen.png'
        photograph(runs[-1], screen, PART)
        join(screen, runs[-1] / 'prediction.png', IMAGES / 'overview.png')
        photograph(Path(folder), screen, WHOLE)
        with Image.open(screen) as whole:
            octree, plain = Image.Quantize.FASTOCTREE, Image.Dither.NONE
            few = whole.convert('RGB').quantize(COLORS, octree, dither=plain)
            few.save(IMAGES / 'dashboard.png', optimize=True)


def photograph(folder: Path, path: Path, height: int) -> None:
    """The dashboard of a run, or of all runs in a folder, as a picture."""
    command = [sys.executable, '-m', 'dreamerv3', 'watch', str(folder), '--port', '0']
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        url = server.stdout.readline().split()[-1]
        browser = next(x for x in BROWSERS if Path(x).exists())
        with sync_playwright() as playwright:
            chromium = playwright.chromium.launch(
                executable_path=browser, args=['--no-sandbox']
            )
            page = chromium.new_page(viewport={'width': WIDTH, 'height': height})
            page.goto(url)
            page.get_by_text('scores/').first.wait_for()
            page.locator('canvas').first.wait_for()
            page.wait_for_load_state('load')
            page.screenshot(path=path, animations='disabled')
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
