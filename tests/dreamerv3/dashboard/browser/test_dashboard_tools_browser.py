"""Table, groups, files, logs, scores, videos and labels of runs in Chromium."""

import csv
import json
import re

import pytest
from browsing import CHROMIUM, LOOKS, visit
from dashboards import dashboard
from PIL import Image
from playwright.sync_api import expect
from sample_runs import START, append, line, make_run, make_video

pytestmark = pytest.mark.skipif(
    CHROMIUM is None,
    reason='browser tests need Chromium: apt-get install chromium',
)
BLUE, ORANGE = '#3566cf', '#d4581f'  # first colors of the page
LEVELS = {'a1': 1.0, 'a2': 3.0, 'b1': 5.0}
FINGER = 36  # pixels that a finger finds
SMALL = """size => [...document.querySelectorAll('button, select, .choice span')]
  .filter((node) => node.checkVisibility())
  .filter((node) => node.getBoundingClientRect().height < size)
  .map((node) => node.outerHTML)"""


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """Three runs with all that there is, and three that lack most of it."""
    folder = tmp_path_factory.mktemp('logdir')
    for seed, (name, level) in enumerate(LEVELS.items()):
        envs = 4 if name.startswith('a') else 16
        run = make_run(folder / name, 40, level, seed=seed, envs=envs)
        make_video(run, 1000)
        (run / 'logs').mkdir()
        (run / 'logs' / 'agent.log').write_text(f'<b>{name}</b> begins\n')
    make_video(folder / 'b1', 2000)
    (folder / 'config-only').mkdir()
    (folder / 'config-only' / 'config.yaml').write_text('task: toy_catch\n')
    (folder / 'metrics-only').mkdir()
    append(
        folder / 'metrics-only' / 'metrics.jsonl', {'step': 3, 'time': START, 'a': 1}
    )
    return folder


@pytest.fixture(scope='module')
def server(folder):
    with dashboard(folder) as found:
        yield found


def names(page):
    """The runs of the table, in its order."""
    return page.locator('.runs-table tbody th')


def card(page, metric):
    return page.locator(f'[data-metric="{metric}"]').first


def test_the_table_is_sorted_by_any_column_also_after_a_reload(chromium, server):
    with visit(chromium, server.url) as seen:
        page = seen.page
        seen.open('Table')
        expect(names(page)).to_have_count(5)
        row = page.locator('tbody tr', has_text='b1')
        # 5 * (2 / (1 + exp(-37.5 / 20)) - 1), with the noise of the samples.
        expect(row).to_contain_text(re.compile(r'3\.6\d'))
        page.get_by_role('button', name='Final score').click()
        ordered = ['b1', 'a2', 'a1', 'config-only', 'metrics-only']
        expect(names(page)).to_have_text(ordered)
        expect(page.locator('[aria-sort=descending]')).to_contain_text('Final score')
        column = page.get_by_label('Add an option as column')
        column.fill('run.nothing')
        column.press('Enter')
        expect(page.locator('.toolbar .problem')).to_contain_text('run.nothing')
        column.fill('run.envs')
        column.press('Enter')
        expect(row).to_contain_text('16')
        page.get_by_role('button', name='run.envs', exact=True).click()
        expect(names(page).nth(2)).to_have_text('b1')
        page.reload()
        expect(row).to_contain_text('16')
        expect(names(page).nth(2)).to_have_text('b1')
        expect(page.locator('[aria-sort=ascending]')).to_contain_text('run.envs')
        seen.picture('table')
        with page.expect_download() as download:
            page.get_by_role('button', name='CSV of the table').click()
        with open(download.value.path(), newline='') as file:
            rows = list(csv.DictReader(file))
        assert rows[2]['Run'] == 'b1'
        assert rows[2]['run.envs'] == '16'
        page.get_by_label('Remove the column run.envs').click()
        expect(page.get_by_role('button', name='run.envs', exact=True)).to_have_count(0)


def test_an_address_with_names_that_mean_nothing_opens(chromium, server):
    senseless = '#tab=constructor&x=toString&kind=valueOf&columns=constructor'
    with visit(chromium, server.url) as seen:
        page = seen.page
        page.goto('about:blank')  # or only what is behind # would change
        page.goto(server.url + senseless)
        expect(page.locator('[aria-selected=true]')).to_have_text('Curves')
        expect(page.locator('.choice input:checked').first).to_have_value('step')
        seen.open('Table')
        row = page.locator('tbody tr', has_text='b1')
        expect(row.locator('td').nth(-2)).to_have_text('–')
        column = page.get_by_label('Add an option as column')
        column.fill('toString')
        column.press('Enter')
        expect(page.locator('.toolbar .problem')).to_contain_text('toString')
        seen.open('Scores')
        expect(page.locator('.choice input:checked').first).to_have_value('score')


def test_a_run_that_lacks_things_says_so(chromium, server):
    with visit(chromium, server.url) as seen:
        page = seen.page
        seen.open('Table')
        row = page.locator('tbody tr', has_text='config-only')
        expect(row).to_contain_text('no episode')
        expect(row).to_contain_text('none')
        expect(row).to_contain_text('unknown')
        expect(page.locator('tbody tr', has_text='metrics-only')).to_contain_text(
            'no config'
        )
        seen.pick('config-only')
        says = {
            'Curves': 'No metrics have been written yet.',
            'Scores': 'no scores yet',
            'Processes': 'unknown',
            'Logs': 'no logs',
            'Videos': 'No videos yet: config-only',
            'Options': 'toy_catch',
            'Events': 'Nothing has happened yet.',
        }
        for tab, text in says.items():
            seen.open(tab)
            expect(page.locator('#panel')).to_contain_text(text)
        seen.pick('metrics-only')
        seen.open('Curves')
        page.get_by_text('Updates', exact=True).click()
        expect(card(page, 'a').locator('.scale')).to_contain_text('train/updates')


def test_an_empty_folder_says_what_to_do_until_there_is_a_run(chromium, tmp_path):
    with dashboard(tmp_path) as server, visit(chromium, server.url) as seen:
        welcome = seen.page.locator('#welcome')
        expect(welcome).to_contain_text(f'--logdir {tmp_path}/catch')
        seen.picture('empty')
        make_run(tmp_path / 'first', 5)
        expect(card(seen.page, 'fps/env').locator('canvas')).to_be_visible()
        expect(welcome).to_be_hidden()


def test_a_regular_expression_filters_runs_and_says_what_is_wrong(chromium, server):
    with visit(chromium, server.url) as seen:
        page = seen.page
        seen.open('Table')
        field = page.get_by_label('Filter runs')
        field.fill('^a[12]$')
        expect(names(page)).to_have_text(['a1', 'a2'])
        expect(page.locator('#run-list .run')).to_have_count(2)
        problem = page.locator('#filter-error')
        field.fill('^a[12$')
        expect(problem).to_contain_text('Not a regular expression: Unterminated')
        expect(field).to_have_attribute('aria-invalid', 'true')
        expect(names(page)).to_have_text(['a1', 'a2'])  # the last valid one
        seen.picture('filter')
        field.fill('B1|config')
        expect(problem).to_be_hidden()
        expect(names(page)).to_have_text(['b1', 'config-only'])
        page.reload()
        expect(names(page)).to_have_text(['b1', 'config-only'])
        expect(field).to_have_value('B1|config')
        field.fill('no such run')
        expect(page.locator('.table .note')).to_contain_text('No run matches')


def test_runs_are_grouped_by_any_option(chromium, server):
    with visit(chromium, server.url) as seen:
        page = seen.page
        seen.pick('a1', 'a2', 'b1')
        seen.smooth(0)
        page.get_by_label('Group by').select_option('option:run.envs')
        legend = card(page, 'train/loss/total').locator('.legend li')
        expect(legend).to_have_count(2)
        expect(legend.first).to_contain_text('run.envs = 4, 2 seeds')
        # The mean of 1 and 3 times 10 / (1 + 39 / 20).
        expect(legend.first.locator('b')).to_have_text('6.78')
        expect(legend.last).to_contain_text('run.envs = 16, b1')
        assert seen.pixels('train/loss/total', '#d7e0f5', within=8) > 1000
        assert seen.pixels('train/loss/total', ORANGE) > 100
        with chromium.new_context() as other:  # a link shows the same
            shared = other.new_page()
            shared.goto(page.url)
            legend = card(shared, 'train/loss/total').locator('.legend li')
            expect(legend.first).to_contain_text('run.envs = 4, 2 seeds')
        seen.picture('grouped')


def test_a_chart_becomes_a_table_and_a_picture(chromium, server):
    with visit(chromium, server.url) as seen:
        page = seen.page
        seen.pick('a1', 'b1')
        seen.smooth(0.5)
        page.get_by_text('Frames', exact=True).click()
        chart = card(page, 'train/loss/total')
        expect(chart.locator('.legend li')).to_have_count(2)
        chart.hover()
        with page.expect_download() as download:
            page.get_by_label('CSV of train/loss/total').first.click()
        assert download.value.suggested_filename == 'train_loss_total-frames.csv'
        with open(download.value.path(), newline='') as file:
            rows = list(csv.DictReader(file))
        assert [row['curve'] for row in rows] == ['a1'] * 40 + ['b1'] * 40
        assert [float(row['frames']) for row in rows[:3]] == [0, 100, 200]
        assert float(rows[60]['mean']) == 25  # 5 * 10 / (1 + 20 / 20)
        assert float(rows[60]['smoothed']) > 25
        with page.expect_download() as download:
            page.get_by_label('PNG of train/loss/total').first.click()
        with Image.open(download.value.path()) as picture:
            assert picture.width > 1000
            colors = dict(map(reversed, picture.convert('RGB').getcolors(1 << 24)))
        for color in (BLUE, ORANGE):
            assert colors[tuple(bytes.fromhex(color[1:]))] > 400, color


def test_formulas_in_names_stay_text_in_a_table(chromium, tmp_path):
    make_run(tmp_path / '=1+1,"x"', 5)
    with dashboard(tmp_path) as server, visit(chromium, server.url) as seen:
        seen.open('Table')
        expect(names(seen.page)).to_have_count(1)
        with seen.page.expect_download() as download:
            seen.page.get_by_role('button', name='CSV of the table').click()
        with open(download.value.path(), newline='') as file:
            assert next(csv.DictReader(file))['Run'] == '\'=1+1,"x"'


def test_a_log_is_shown_as_it_grows(chromium, server, folder):
    with visit(chromium, server.url) as seen:
        page = seen.page
        seen.pick('a1', 'a2')
        seen.open('Logs')
        lines = page.locator('.log-text')
        expect(lines).to_have_text('<b>a1</b> begins')
        with (folder / 'a1' / 'logs' / 'agent.log').open('a') as file:
            file.write('\x1b[31m' + 'and goes on\n' * 200 + 'to here\n')
        expect(lines).to_contain_text('to here')
        end = 'node => node.scrollHeight - node.scrollTop - node.clientHeight'
        assert lines.evaluate(end) < 2
        seen.picture('logs')
        page.get_by_label('Role').select_option(index=1)
        expect(lines).to_have_text('<b>a2</b> begins')
        page.reload()
        expect(lines).to_have_text('<b>a2</b> begins')
        with page.expect_download() as download:
            page.get_by_role('link', name='Download').click()
        with open(download.value.path()) as file:
            assert file.read() == '<b>a2</b> begins\n'


def test_scores_of_runs_are_shown_as_histograms(chromium, server):
    with visit(chromium, server.url) as seen:
        page = seen.page
        seen.pick('a1', 'b1')
        seen.open('Scores')
        expect(names(page)).to_have_text(['a1', 'b1'])
        expect(page.locator('.histogram canvas')).to_be_visible()
        page.get_by_text('Whole run').click()
        page.get_by_text('Lengths').click()
        row = page.locator('tbody tr', has_text='b1')
        expect(row.locator('td').first).to_have_text('160')  # 40 lines of 4 episodes
        expect(row.locator('td').last).to_have_text('7')
        page.get_by_label('Group by').select_option('option:task')
        expect(names(page)).to_have_text(['task = toy_catch, 2 seeds'])
        page.get_by_label('Evaluation episodes').check()
        expect(page.locator('#panel .note')).to_contain_text('no evaluation lengths')


def test_videos_of_runs_stand_side_by_side(chromium, server):
    with visit(chromium, server.url) as seen:
        page = seen.page
        seen.pick('a1', 'b1')
        seen.open('Videos')
        images = page.locator('.screen img')
        expect(images).to_have_count(2)
        boxes = [images.nth(index).bounding_box() for index in range(2)]
        assert boxes[0]['y'] == boxes[1]['y']
        expect(images.last).to_have_attribute('src', re.compile('2000.png$'))
        page.get_by_role('button', name='Play').click()
        for image in (images.first, images.last):
            expect(image).to_have_attribute('src', re.compile('.gif$'))
        page.get_by_role('slider').press('ArrowLeft')
        expect(images.last).to_have_attribute('src', re.compile('1000.gif$'))
        seen.picture('side-by-side')


def test_a_run_is_renamed_annotated_and_hidden(chromium, tmp_path):
    for name in ('left', 'right'):
        make_run(tmp_path / name, 5)
    with (
        dashboard(tmp_path) as server,
        visit(chromium, server.url) as seen,
        visit(chromium, server.url) as other,
    ):
        page = seen.page
        seen.pick('left', 'right')
        dialog = page.locator('dialog')
        edit(page, 'left')
        dialog.get_by_label('Name').fill('<i>first</i>')
        dialog.get_by_label('Notes').fill('good\n<script>alert(1)</script>')
        seen.picture('dialog')
        dialog.get_by_role('button', name='Save').click()
        expect(dialog).to_be_hidden()
        for one in (seen, other):
            run = one.page.locator('.run', has_text='<i>first</i>')
            expect(run).to_contain_text('<script>alert(1)</script>')
        legend = card(page, 'fps/env').locator('.legend')
        expect(legend).to_contain_text('<i>first</i>')
        record = json.loads((tmp_path / 'left' / 'dashboard.json').read_text())
        assert record['name'] == '<i>first</i>'
        edit(other.page, 'right')
        other.page.locator('dialog').get_by_label('Hide this run').check()
        other.page.locator('dialog').get_by_role('button', name='Save').click()
        for one in (seen, other):
            expect(one.page.locator('#run-list .run')).to_have_count(1)
        expect(legend).not_to_contain_text('right')
        page.get_by_label('Show hidden runs (1)').check()
        expect(page.locator('.run', has_text='right')).to_contain_text('hidden')
        edit(page, 'right')
        dialog.get_by_label('Hide this run').uncheck()
        dialog.get_by_role('button', name='Save').click()
        expect(other.page.locator('#run-list .run')).to_have_count(2)


def edit(page, name):
    page.locator('#run-list li', has_text=name).hover()
    page.get_by_role('button', name=f'Edit {name}').click()


def test_what_cannot_be_saved_is_kept_in_the_dialog_with_the_reason(chromium, tmp_path):
    make_run(tmp_path / 'run', 5)
    with (
        dashboard(tmp_path, '--read-only') as server,
        visit(chromium, server.url) as seen,
    ):
        edit(seen.page, 'run')
        dialog = seen.page.locator('dialog')
        dialog.get_by_label('Notes').fill('long thoughts')
        dialog.get_by_role('button', name='Save').click()
        expect(dialog.locator('.problem')).to_contain_text('--read-only')
        expect(dialog.get_by_label('Notes')).to_have_value('long thoughts')
        dialog.get_by_role('button', name='Cancel').click()
        expect(dialog).to_be_hidden()
        assert len(seen.complaints) == 1  # the browser reports each refusal
        assert '403' in seen.complaints.pop()


def test_a_note_that_was_changed_elsewhere_is_not_overwritten(chromium, tmp_path):
    run = make_run(tmp_path / 'run', 5)
    with dashboard(tmp_path) as server, visit(chromium, server.url) as seen:
        edit(seen.page, 'run')
        dialog = seen.page.locator('dialog')
        dialog.get_by_label('Notes').fill('mine')
        (run / 'dashboard.json').write_text('{"notes": "yours"}')
        append(run / 'metrics.jsonl', line(9))
        expect(seen.page.locator('.run')).to_contain_text('yours')
        dialog.get_by_role('button', name='Save').click()
        expect(dialog.locator('.problem')).to_contain_text('changed elsewhere')
        expect(dialog.locator('.problem')).to_contain_text('yours')
        assert json.loads((run / 'dashboard.json').read_text())['notes'] == 'yours'
        dialog.get_by_label('Notes').fill('yours and mine')
        dialog.get_by_role('button', name='Save').click()
        expect(dialog).to_be_hidden()
        record = json.loads((run / 'dashboard.json').read_text())
        assert record['notes'] == 'yours and mine'
        assert '409' in seen.complaints.pop()


def test_fingers_find_what_can_be_pressed(chromium, server):
    with visit(chromium, server.url, 'phone') as seen:
        page = seen.page
        for tab in ('Table', 'Curves', 'Scores', 'Logs', 'Videos'):
            seen.open(tab)
            expect(page.get_by_role('tab', name=tab)).to_be_in_viewport()
            assert page.evaluate(SMALL, FINGER) == [], tab
        page.get_by_role('button', name='Runs').click()
        page.locator('#run-list .edit').first.click()
        expect(page.locator('dialog')).to_be_visible()
        assert page.evaluate(SMALL, FINGER) == []


@pytest.mark.parametrize('look', LOOKS)
def test_text_stands_out_from_its_background(chromium, server, look):
    with visit(chromium, server.url, look) as seen:
        page = seen.page
        for tab, ready in READY.items():
            seen.open(tab)
            expect(page.locator(ready).first).to_be_visible()
            assert page.evaluate(FAINT) == [], tab


READY = {'Table': 'tbody tr', 'Scores': 'tbody tr', 'Logs': '.log-text'}
# Texts whose contrast is below 4.5, as the guidelines for accessibility ask for.
FAINT = """() => {
  const canvas = document.createElement('canvas')
    .getContext('2d', { willReadFrequently: true });
  const rgb = (text) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => [[r, 0.2126], [g, 0.7152], [b, 0.0722]]
    .map(([value, share]) => [value / 255, share])
    .map(([v, share]) => share * (v <= 0.03928 ? v / 12.92
      : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((a, b) => a + b);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const color = rgb(getComputedStyle(node).backgroundColor);
      if (color[3] === 255) return color;
    }
    return [255, 255, 255];
  };
  const own = (node) => [...node.childNodes]
    .some((child) => child.nodeType === 3 && child.data.trim());
  return [...document.querySelectorAll('body *')]
    .filter((node) => own(node) && node.checkVisibility())
    .map((node) => [
      node, light(rgb(getComputedStyle(node).color)), light(behind(node))])
    .filter(([, a, b]) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 4.5)
    .map(([node]) => node.outerHTML.slice(0, 200));
}"""
