"""The dashboard in a real Chromium, with runs that are being written."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from browsing import CHROMIUM, LOOKS, visit
from dashboards import Dashboard, dashboard
from playwright.sync_api import expect
from sample_runs import append, line, make_run, make_video, scores, write_status

pytestmark = pytest.mark.skipif(
    CHROMIUM is None,
    reason='browser tests need Chromium: apt-get install chromium',
)
# The page's policy forbids eval, so the driver cannot ask again and again: it waits.
UNTIL_IT_MOVED = """video => new Promise(done => {
    const look = () => video.currentTime > 0 && done();
    video.addEventListener('timeupdate', look);
    look();
})"""
WHEN_DRAWN = """() => new Promise(done =>
    requestAnimationFrame(() => requestAnimationFrame(done)))"""
# With a value: a chart without points has nothing to read.
OVER_TIME = re.compile(r' over training time, 1 curves\. run: -?\d')
BAND = '#d7e0f5'  # blue on white, as faint as the band of merged seeds
BLUE, ORANGE, GRAY = '#3566cf', '#d4581f', '#8a8f98'  # first colors of the page


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp('logdir')
    for seed in range(2):
        run = make_run(folder / f'catch-seed{seed}', 60, 1.0 - 0.5 * seed, seed=seed)
        make_video(run, 1000)
        make_video(run, 5000)
        (run / 'logs').mkdir()
        (run / 'logs' / 'agent.log').write_text('the agent starts\n')
    make_run(folder / 'walker', 40, 0.8, task='dmc_walker_walk', envs=8)
    (folder / 'reference.csv').write_text(
        'suite,task,env_frames,seeds,mean,min,max\n'
        'toys,toy_catch,500,3,0.5,0.25,0.75\ntoys,toy_catch,5000,3,1.5,1,2\n'
    )
    return folder


@pytest.fixture(scope='module')
def server(folder):
    with dashboard(folder, '--reference', str(folder / 'reference.csv')) as found:
        yield found


def chart(page, metric):
    return page.locator(f'[data-metric="{metric}"]').first


def test_two_runs_are_drawn_over_each_other(chromium, server):
    with visit(chromium, server.url) as seen:
        seen.pick('catch-seed0', 'walker')
        card = chart(seen.page, 'train/loss/total')
        expect(card.locator('.legend li')).to_have_count(2)
        expect(card.locator('.legend')).to_contain_text('catch-seed0')
        assert float(card.locator('.legend b').first.inner_text()) > 2.54  # smoothed
        seen.smooth(0)
        expect(card.locator('.legend b').first).to_have_text('2.53')  # 10 / (1 + 59/20)
        assert seen.pixels('train/loss/total', BLUE) > 100
        assert seen.pixels('train/loss/total', ORANGE) > 100
        seen.pick('walker')
        expect(card.locator('.legend li')).to_have_count(1)
        assert seen.pixels('train/loss/total', BLUE) > 100
        assert seen.pixels('train/loss/total', ORANGE) == 0
        seen.picture('curves')


def test_seeds_are_merged_and_the_reference_is_gray(chromium, server):
    with visit(chromium, server.url) as seen:
        seen.pick('catch-seed0', 'catch-seed1')
        card = chart(seen.page, 'scores/score')
        expect(card.locator('.legend')).to_contain_text('toy_catch (toys, 3 seeds)')
        seen.page.get_by_label('Group by').select_option('seeds')
        expect(card.locator('.legend')).to_contain_text('toy_catch, 2 seeds')
        expect(card.locator('.scale')).to_be_empty()
        assert seen.pixels('scores/score', BLUE) > 100
        assert seen.pixels('scores/score', ORANGE) == 0
        assert seen.pixels('scores/score', GRAY) > 50
        seen.page.get_by_label('Log scale').check()
        expect(card.locator('.scale')).to_contain_text('Linear')  # scores below 0
        expect(chart(seen.page, 'train/loss/total').locator('.scale')).to_be_empty()
        seen.page.get_by_label('Reference').uncheck()
        expect(card.locator('.legend')).not_to_contain_text('Reference')
        seen.picture('merged')


def test_a_mean_is_dashed_where_a_run_has_ended(chromium, tmp_path):
    for name, lines in {'first': 60, 'again': 60, 'short': 30}.items():
        make_run(tmp_path / 'logs' / name, lines, seed=int(name == 'short'))
    with dashboard(tmp_path / 'logs') as server, visit(chromium, server.url) as seen:
        seen.page.get_by_label('Group by').select_option('seeds')
        legend = chart(seen.page, 'train/loss/total').locator('.legend')
        expect(legend).to_contain_text('toy_catch, 3 runs of 2 seeds')
        expect(legend).to_contain_text('Dashed: some of the runs have ended')
        dashed = seen.pixels('train/loss/total', BLUE)
        seen.picture('dashed')
        seen.pick('first', 'again')
        expect(legend).to_contain_text('toy_catch, 2 runs of 1 seed')
        expect(legend).not_to_contain_text('Dashed')
        assert seen.pixels('train/loss/total', BLUE) > dashed


def test_bands_are_not_smoothed(chromium, server):
    with visit(chromium, server.url) as seen:
        seen.pick('catch-seed0', 'catch-seed1')
        seen.page.get_by_label('Group by').select_option('seeds')
        legend = chart(seen.page, 'train/loss/total').locator('.legend')
        expect(legend).to_contain_text('toy_catch, 2 seeds')
        seen.smooth(0)
        exact = legend.inner_text()
        band = seen.pixels('train/loss/total', BAND, within=8)
        seen.smooth(0.99)
        expect(legend).not_to_have_text(exact)
        # The line lies elsewhere and hides other parts of the band.
        assert band > 1000
        assert abs(seen.pixels('train/loss/total', BAND, within=8) - band) < 0.1 * band


def test_a_late_answer_does_not_replace_a_newer_one(chromium, tmp_path):
    for name in ('first', 'again'):
        make_run(tmp_path / 'logs' / name, 60)
    late = []

    def hold(route):
        if 'group=seeds' in route.request.url:
            route.continue_()
        else:
            late.append((route, route.fetch().text()))

    with (
        dashboard(tmp_path / 'logs') as server,
        visit(chromium, server.url, hold=hold) as seen,
    ):
        if not any(map(is_for_series, seen.requests)):
            seen.page.wait_for_event('request', lambda x: is_for_series(x.url))
        seen.page.get_by_label('Group by').select_option('seeds')
        legend = chart(seen.page, 'train/loss/total').locator('.legend')
        expect(legend).to_contain_text('toy_catch, 2 runs of 1 seed')
        for route, body in late:
            with seen.page.expect_event('requestfinished'):
                route.fulfill(body=body, content_type='application/json')
        seen.page.evaluate(WHEN_DRAWN)
        assert late and 'toy_catch, 2 runs of 1 seed' in legend.inner_text()


def is_for_series(address):
    return '/api/series' in address


def test_all_charts_of_a_run_count_the_same_seconds_of_training(chromium, tmp_path):
    make_run(tmp_path / 'logs' / 'run', 60)
    with dashboard(tmp_path / 'logs') as server, visit(chromium, server.url) as seen:
        seen.page.get_by_text('Training time').click()
        for metric, value in {'scores/score': '', 'train/loss/total': '10'}.items():
            plot = chart(seen.page, metric).locator('.plot')
            expect(plot).to_have_attribute('aria-label', OVER_TIME)
            plot.focus()
            seen.page.keyboard.press('Home')
            # Metrics and scores begin 5 seconds after training, at one time of day.
            readout = seen.page.locator('#readout')
            expect(readout).to_contain_text(f'training time 5 s: run: {value}')


def test_a_growing_run_is_followed_without_a_reload(chromium, server, folder):
    run = make_run(folder / 'growing', 10)
    with visit(chromium, server.url) as seen:
        seen.page.evaluate('window.sameDocument = true')
        seen.pick('growing')
        seen.smooth(0)
        value = chart(seen.page, 'train/imag/return').locator('.legend b')
        expect(value).to_have_text('0.221')  # tanh(9 / 40)
        append(run / 'metrics.jsonl', line(20) | {'new/metric': 1.0})
        append(run / 'scores.jsonl', *scores(20))
        expect(value).to_have_text('0.462')  # tanh(20 / 40)
        expect(seen.page.locator('.run', has_text='growing')).to_contain_text(
            '2k steps'
        )
        new = seen.page.locator('[data-group=new]')
        expect(new).to_have_count(1)
        assert seen.page.evaluate('window.sameDocument')


def test_a_video_plays_when_asked_to(chromium, server):
    with visit(chromium, server.url) as seen:
        seen.pick('catch-seed0')
        seen.open('Videos')
        image = seen.page.locator('.screen img')
        expect(image).to_have_attribute('src', is_file('000000005000.png'))
        seen.page.get_by_role('button', name='Play').click()
        expect(image).to_have_attribute('src', is_file('000000005000.gif'))
        loaded = 'image => image.decode().then(() => image.naturalWidth)'
        assert image.evaluate(loaded) > 0
        seen.page.get_by_role('slider').press('ArrowLeft')
        expect(image).to_have_attribute('src', is_file('000000001000.gif'))
        seen.picture('videos')


def test_a_film_plays_when_asked_to(chromium, server, folder):
    make_video(folder / 'walker', 2000, kind='mp4')
    with visit(chromium, server.url) as seen:
        seen.pick('walker')
        seen.open('Videos')
        seen.page.get_by_role('button', name='Play').click()
        film = seen.page.locator('.screen video')
        expect(film).to_have_attribute('src', is_file('000000002000.mp4'))
        film.evaluate(UNTIL_IT_MOVED)


def is_file(ending):
    return re.compile(f'{re.escape(ending)}$')


def test_it_survives_a_restart_of_the_server(chromium, tmp_path):
    run = make_run(tmp_path / 'logdir' / 'run', 10)
    server = Dashboard(tmp_path / 'logdir')
    context = chromium.new_context()
    page = context.new_page()  # it may complain that the server is away
    page.goto(server.url)
    page.get_by_label('Smoothing').fill('0')
    value = chart(page, 'train/imag/return').locator('.legend b')
    expect(value).to_have_text('0.221')
    server.close()
    expect(page.locator('#connection')).to_contain_text('not reached')
    append(run / 'metrics.jsonl', line(20))
    again = Dashboard(tmp_path / 'logdir', port=server.port)
    expect(page.locator('#connection')).to_have_text('live')
    expect(value).to_have_text('0.462')
    context.close()
    assert again.close() == 0


def test_options_that_were_not_answered_are_asked_for_once_more(chromium, tmp_path):
    make_run(tmp_path / 'logdir' / 'run', 10, envs=16)
    server = Dashboard(tmp_path / 'logdir')
    context = chromium.new_context()
    page = context.new_page()  # it may complain that the server is away
    page.goto(f'{server.url}#tab=table&columns=seed')
    row = page.locator('tbody tr')
    expect(row.locator('td').nth(-2)).not_to_have_text('–')
    column = page.get_by_label('Add an option as column')
    column.fill('run.envs')
    server.close()
    expect(page.locator('#connection')).to_contain_text('not reached')
    with page.expect_event('requestfailed', lambda x: '/api/options' in x.url):
        column.press('Enter')
    again = Dashboard(tmp_path / 'logdir', port=server.port)
    expect(row.locator('td').nth(-2)).to_have_text('16')
    context.close()
    assert again.close() == 0


def test_states_of_roles_are_shown_as_they_change(chromium, server, folder):
    run = make_run(folder / 'roles', 10)
    write_status(run)
    with visit(chromium, server.url) as seen:
        seen.pick('roles')
        seen.open('Processes')
        replay = seen.page.locator('.box', has_text='Replay').locator('.badge')
        expect(replay).to_have_class('badge is-running')
        assert color_of(replay) == 'rgb(26, 127, 75)'
        write_status(run, replay={'state': 'restarting', 'restarts': 1})
        expect(replay).to_have_class('badge is-restarting')
        assert color_of(replay) == 'rgb(195, 39, 59)'
        # Its metrics are old: a run that says it runs but writes nothing is stuck.
        verdict = seen.page.locator('.verdict')
        expect(verdict).to_have_text(re.compile('^No new metrics for .* stuck'))
        write_status(run, agent={'doing': 'compiling train for 34 s'})
        expect(verdict).to_contain_text('Agent compiling train for 34 s. No new')
        append(run / 'metrics.jsonl', line(11) | {'time': time.time()})
        expect(verdict).to_contain_text('Learner-bound: learner busy 90%')
        flows = seen.page.locator('.arrow')
        expect(flows.first).to_have_class('arrow moving')
        expect(flows.last).to_have_class('arrow')  # nothing comes from the replay
        seen.picture('processes')
        write_status(run, state='failed')
        expect(replay).to_have_class('badge is-dead')


def color_of(locator):
    return locator.evaluate('node => getComputedStyle(node).color')


def test_a_real_run_shows_how_a_killed_role_comes_back(chromium, tmp_path):
    logdir = tmp_path / 'logdir' / 'real'
    logdir.mkdir(parents=True)
    flags = '--configs debug --random_agent True --task dummy_disc --run.envs 2'
    flags += ' --run.eval_envs 0 --run.log_every 0.5 --run.duration 120'
    command = [sys.executable, '-m', 'dreamerv3', 'parallel', *flags.split()]
    run = subprocess.Popen(
        [*command, '--logdir', str(logdir), '--logger.outputs', 'jsonl'],
        stdout=subprocess.DEVNULL,
    )
    try:
        with dashboard(logdir.parent) as server:
            kill_and_watch(chromium, server.url, logdir)
    finally:
        run.terminate()
        run.wait(60)


def kill_and_watch(chromium, url, logdir):
    with visit(chromium, url) as seen:
        canvas = chart(seen.page, 'fps/env').locator('canvas')
        expect(canvas).to_be_visible()
        seen.open('Processes')
        worker = seen.page.locator('.dots .dot').first
        fine = re.compile('is-(running|waiting)')
        expect(worker).to_have_class(fine)
        status = json.loads((logdir / 'status.json').read_text())
        os.kill(status['roles']['env0']['pid'], signal.SIGKILL)
        expect(worker).to_have_class(re.compile('is-restarting'))
        seen.picture('killed')
        expect(worker).to_have_class(fine)
        expect(seen.page.locator('.run')).to_contain_text('1 restart')
        seen.open('Events')
        expect(seen.page.locator('table.events')).to_contain_text('role restarting')
        seen.open('Logs')
        role = seen.page.get_by_label('Role')
        expect(role.locator('option', has_text='agent')).to_have_count(1)
        role.select_option(label=role.locator('option', has_text='env0').inner_text())
        starts = seen.page.locator('.log-text')
        expect(starts).to_have_text(re.compile('(The role starts.*){2}', re.DOTALL))


def test_names_with_markup_are_only_text(chromium, server, folder):
    name = '<img src=x onerror=alert(1)>'
    run = make_run(folder / name.replace('/', ''), 3, task='<script>alert(2)</script>')
    append(run / 'metrics.jsonl', line(4) | {'<b onclick=alert(3)>bold</b>': 1.0})
    append(
        run / 'events.jsonl', {'time': 1.0, 'event': '<i>x</i>', 'reason': '</table>'}
    )
    with visit(chromium, server.url) as seen:
        seen.pick(name)
        expect(seen.page.locator('.run', has_text=name)).to_contain_text('<script>')
        seen.page.get_by_label('Filter metrics').fill('bold')
        expect(seen.page.locator('.card .metric')).to_contain_text('bold</b>')
        for tab in ('Table', 'Scores', 'Processes', 'Videos', 'Options', 'Events'):
            seen.open(tab)
            expect(seen.page.locator('#panel')).to_contain_text(name)
        expect(seen.page.locator('table.events')).to_contain_text('</table>')
        assert seen.page.locator('#panel i i, #panel img, main script').count() == 0


def test_options_show_what_differs(chromium, server):
    with visit(chromium, server.url) as seen:
        seen.pick('catch-seed0', 'walker')
        seen.open('Options')
        rows = seen.page.locator('tbody tr')
        expect(rows.filter(has_text='run.envs')).to_contain_text('16')
        expect(rows.filter(has_text='run.log_every')).to_have_count(0)
        seen.page.get_by_label('Only differences').uncheck()
        expect(rows.filter(has_text='run.log_every')).to_have_count(1)
        seen.picture('options')


def test_all_can_be_done_with_the_keyboard(chromium, server):
    with visit(chromium, server.url) as seen:
        page = seen.page
        seen.pick('walker')
        plot = chart(page, 'fps/env').locator('.plot')
        expect(plot.locator('canvas')).to_be_visible()
        plot.focus()
        page.keyboard.press('Home')
        expect(page.locator('#readout')).to_have_text('step 0: walker: 118')
        page.keyboard.press('ArrowRight')
        expect(page.locator('#readout')).to_have_text('step 100: walker: 118')
        page.keyboard.press('+')
        expect(page.get_by_role('button', name='Reset zoom')).to_be_visible()
        page.keyboard.press('Escape')
        expect(page.get_by_role('button', name='Reset zoom')).to_be_hidden()
        page.keyboard.press('/')
        expect(page.get_by_label('Filter metrics')).to_be_focused()
        page.get_by_role('tab', name='Curves').focus()
        page.keyboard.press('ArrowRight')
        tab = page.get_by_role('tab', name='Scores')
        expect(tab).to_be_focused()
        expect(tab).to_have_attribute('aria-selected', 'true')


UNNAMED = """() => [...document.querySelectorAll(
    'button, input, select, textarea, img, [role=meter]')]
  .filter((node) => node.checkVisibility())
  .filter((node) => !node.hasAttribute('aria-label') && !node.hasAttribute('alt')
    && !node.textContent.trim() && !node.labels?.[0]?.textContent.trim())
  .map((node) => node.outerHTML)"""


@pytest.mark.parametrize('look', LOOKS)
def test_every_view_fits_and_has_names_for_readers(chromium, server, look):
    with visit(chromium, server.url, look) as seen:
        page = seen.page
        if look == 'phone':
            page.get_by_role('button', name='Runs').click()
        expect(page.locator('.run').first).to_be_visible()
        seen.picture(f'{look}-runs')
        if look == 'phone':
            page.keyboard.press('Escape')
            expect(page.locator('.run').first).to_be_hidden()
        for tab in READY:
            seen.open(tab)
            expect(page.locator(READY[tab]).first).to_be_visible()
            seen.picture(f'{look}-{tab.lower()}')
            assert page.evaluate(UNNAMED) == []
            width = page.evaluate('document.documentElement.scrollWidth')
            assert width <= page.viewport_size['width'], tab
        background = page.evaluate('getComputedStyle(document.body).backgroundColor')
        dark = 'rgb(16, 18, 22)'
        assert (background == dark) == (look == 'dark')


READY = {
    'Table': 'tbody tr',
    'Curves': '.plot canvas',
    'Scores': '.plot canvas',
    'Processes': '.picture',
    'Logs': '.log-text',
    'Videos': '.screen img',
    'Options': 'tbody tr',
    'Events': 'tbody tr',
}
