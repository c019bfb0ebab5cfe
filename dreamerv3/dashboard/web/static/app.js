// The page: tabs, theme, the connection to the server, and which view is shown.

import { changes } from './api.js';
import { el, setText } from './dom.js';
import { LabelDialog } from './label_dialog.js';
import { OptionValues } from './option_values.js';
import { onSystemTheme } from './palette.js';
import { RunList } from './runs.js';
import { emit, on, readAddress, setting, store, takeRuns } from './store.js';
import { CurvesView } from './views/curves.js';
import { EventsView } from './views/events.js';
import { LogsView } from './views/logs.js';
import { OptionsView } from './views/options.js';
import { ProcessesView } from './views/processes.js';
import { ScoresView } from './views/scores.js';
import { TableView } from './views/table.js';
import { VideosView } from './views/videos.js';

const VIEWS = {
  table: ['Table', TableView],
  curves: ['Curves', CurvesView],
  scores: ['Scores', ScoresView],
  processes: ['Processes', ProcessesView],
  logs: ['Logs', LogsView],
  videos: ['Videos', VideosView],
  options: ['Options', OptionsView],
  events: ['Events', EventsView],
};
const THEMES = ['auto', 'light', 'dark'];
const byId = (id) => document.getElementById(id);

let view = null; // the one that is shown

function showView() {
  const name = Object.hasOwn(VIEWS, store.settings.tab) ? store.settings.tab : 'curves';
  for (const tab of document.querySelectorAll('[role=tab]')) {
    const chosen = tab.dataset.view === name;
    tab.setAttribute('aria-selected', chosen);
    tab.tabIndex = chosen ? 0 : -1;
    if (chosen) tab.scrollIntoView({ block: 'nearest', inline: 'nearest' });
  }
  if (view?.name === name) return;
  view?.close?.();
  const panel = el('section', {
    id: 'panel', class: `panel ${name}`, role: 'tabpanel',
    'aria-labelledby': `tab-${name}`,
  });
  byId('panel').replaceWith(panel);
  view = new VIEWS[name][1](panel);
  view.name = name;
}

function makeTabs() {
  const bar = document.querySelector('.tabs');
  for (const [name, [label]] of Object.entries(VIEWS)) {
    bar.append(el('button', {
      role: 'tab', id: `tab-${name}`, 'data-view': name, 'aria-controls': 'panel',
      onclick: () => setting('tab', name),
    }, label));
  }
  bar.addEventListener('keydown', (event) => {
    const names = Object.keys(VIEWS);
    const steps = { ArrowRight: 1, ArrowLeft: -1 };
    if (!(event.key in steps)) return;
    const next = names.indexOf(store.settings.tab) + steps[event.key] + names.length;
    setting('tab', names[next % names.length]);
    byId(`tab-${store.settings.tab}`).focus();
  });
}

function makeTheme() {
  const button = byId('theme');
  const apply = (theme) => {
    if (theme === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    setText(button, { auto: 'Auto', light: 'Light', dark: 'Dark' }[theme]);
    button.setAttribute('aria-label', `Theme: ${theme}`);
    emit('theme');
  };
  let theme = localStorage.getItem('theme') ?? 'auto';
  apply(THEMES.includes(theme) ? theme : 'auto');
  button.addEventListener('click', () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    localStorage.setItem('theme', theme);
    apply(theme);
  });
  onSystemTheme(() => emit('theme'));
}

function makeDrawer() {
  const button = byId('runs-button');
  const toggle = (open) => {
    document.body.classList.toggle('drawer-open', open);
    button.setAttribute('aria-expanded', open);
  };
  button.addEventListener('click', () =>
    toggle(!document.body.classList.contains('drawer-open')));
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') toggle(false);
    const typing = event.target.closest('input, select, textarea');
    if (event.key === '/' && !typing && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      (document.querySelector('#panel input[type=search]') ?? byId('run-filter')).focus();
    }
  });
}

function showConnection(open) {
  const status = byId('connection');
  setText(status, open ? 'live' : 'server not reached, trying again');
  status.classList.toggle('lost', !open);
}

function takeChange({ runs, ids, reference, roots }) {
  document.body.classList.toggle('has-reference', reference);
  store.roots = roots;
  takeRuns(runs, ids);
  showWelcome(ids.length === 0);
}

// What to do while there is nothing to show.
function showWelcome(empty) {
  const place = byId('welcome');
  place.hidden = !empty;
  byId('panel').hidden = empty;
  if (!empty) return;
  const [root] = store.roots;
  const folder = /^[\w./~-]+$/.test(root) ? root : `'${root.replaceAll("'", "'\\''")}'`;
  place.replaceChildren(
    el('h2', {}, 'No runs here yet'),
    el('p', {}, `A run appears by itself as soon as it writes into ${store.roots.join(
      ' or ')}, up to five folders deep. For example:`),
    el('pre', { tabindex: 0 },
      `dreamer train --configs tiny --logdir ${folder}/catch`),
    el('p', { class: 'dim' },
      'Are your runs somewhere else? Give their folder: dreamer watch FOLDER'));
}

readAddress();
makeTabs();
makeTheme();
makeDrawer();
const dialog = new LabelDialog();
new RunList();
new OptionValues();
showView();
on('edit', (run) => dialog.open(run));
on('settings', (name) => name === 'tab' && showView());
window.addEventListener('hashchange', () => location.reload());
document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault(); // the part behind # is what was chosen
  byId('main').focus();
});
changes(takeChange, showConnection);
