// How the scores of episodes are distributed: histograms of runs over each other.

import * as api from '../api.js';
import { labelOf } from '../chart.js';
import { el, setText, setVars } from '../dom.js';
import { short, whole } from '../format.js';
import { GroupSelect } from '../group_select.js';
import { color, faint, ink } from '../palette.js';
import { colorOf, on, setting, store, takeGroups } from '../store.js';
import uPlot from '../vendor/uPlot.esm.js';

const PAUSE_MS = 3000; // between two requests while runs grow
const HEIGHT = 320;
const ASKS = new Set(['kind', 'part', 'evals', 'group']);
const FIGURES = [
  ['episodes', 'Episodes'], ['mean', 'Mean'], ['std', 'Deviation'], ['low', 'Lowest'],
  ['quarter', '25 %'], ['median', 'Median'], ['three_quarters', '75 %'],
  ['high', 'Highest'],
];

export class ScoresView {
  constructor(panel) {
    this.life = new AbortController();
    const { signal } = this.life;
    this.data = null;
    this.plot = null;
    this.request = 0;
    this.timer = null;
    this.note = el('p', { class: 'note', role: 'status' });
    this.canvas = el('div', { class: 'plot', role: 'img' });
    this.legend = el('ul', { class: 'legend' });
    this.card = el('figure', { class: 'card histogram' },
      el('figcaption', {}, this.title = el('span', { class: 'metric' })),
      this.canvas, this.legend);
    this.table = el('div', { class: 'scroll', tabindex: 0, role: 'region',
      'aria-label': 'Figures of the distributions' });
    panel.append(this.toolbar(signal), this.note, this.card, this.table);
    this.size = new ResizeObserver(() => this.fit());
    this.size.observe(this.canvas);
    on('picked', () => this.load(), signal);
    on('points', () => this.later(), signal);
    on('settings', (name) => ASKS.has(name) && this.load(), signal);
    on('theme groups names', () => this.draw(), signal);
    this.load();
  }

  close() {
    this.life.abort();
    clearTimeout(this.timer);
    this.size.disconnect();
    this.plot?.destroy();
    this.plot = null;
  }

  toolbar(signal) {
    const { settings } = store;
    const choice = (name, items) => el('fieldset', { class: 'choices' },
      el('legend', { class: 'hidden' }, name),
      ...items.map(([value, label]) => el('label', { class: 'choice' },
        el('input', {
          type: 'radio', name, value, checked: settings[name] === value,
          onchange: () => setting(name, value),
        }), el('span', {}, label))));
    return el('div', { class: 'toolbar', role: 'toolbar', 'aria-label': 'Scores' },
      choice('kind', [['score', 'Scores'], ['length', 'Lengths']]),
      choice('part', [['last', 'Last tenth of steps'], ['all', 'Whole run']]),
      new GroupSelect(signal).node,
      el('label', { class: 'flag' }, el('input', {
        type: 'checkbox', checked: settings.evals,
        onchange: (event) => setting('evals', event.target.checked),
      }), 'Evaluation episodes'));
  }

  later() {
    this.timer ??= setTimeout(() => {
      this.timer = null;
      this.load();
    }, PAUSE_MS);
  }

  async load() {
    const mine = ++this.request;
    const { picked, settings } = store;
    const { group } = settings;
    try {
      const data = await api.distributions(picked, settings);
      if (mine !== this.request || this.life.signal.aborted) return;
      this.data = data;
      takeGroups(data.members, group);
      this.draw();
    } catch (error) {
      // The header says that the server is not reached.
      if (!(error instanceof TypeError)) throw error;
      if (!this.life.signal.aborted) this.later();
    }
  }

  // [{label, hue, ...figures}] of the groups that have episodes.
  rows() {
    return this.data.members.filter(({ runs }) => runs[0] in this.data.groups)
      .map(({ runs }) => ({
        label: labelOf({ runs }), hue: color(colorOf(runs[0])),
        ...this.data.groups[runs[0]],
      }));
  }

  draw() {
    if (!this.data) return;
    const rows = this.rows();
    const { kind, part, evals } = store.settings;
    const what = `${evals ? 'evaluation ' : ''}${kind}s`;
    this.card.hidden = this.table.hidden = !rows.length;
    this.note.hidden = rows.length > 0;
    setText(this.note, store.picked.length
      ? `These runs have no ${what} yet: a score is written when an episode ends.`
      : 'Choose runs to see the distribution of their scores.');
    this.plot?.destroy();
    this.plot = null;
    if (!rows.length) return;
    const text = `Share of episodes over ${what}, ${part === 'all' ? 'whole run'
      : 'last tenth of the steps'}`;
    setText(this.title, text);
    this.canvas.setAttribute('aria-label', `${text}. The table has the figures.`);
    this.legend.replaceChildren(...rows.map(({ label, hue }) => {
      const item = el('li', {}, el('i', {}), el('span', { class: 'label' }, label));
      setVars(item, { color: hue });
      return item;
    }));
    this.drawPlot(rows);
    this.drawTable(rows);
  }

  drawPlot(rows) {
    const { edges } = this.data;
    const axis = { stroke: ink('dim'), grid: { stroke: ink('grid'), width: 1 },
      ticks: { show: false }, font: '11px system-ui, sans-serif' };
    const stepped = uPlot.paths.stepped({ align: 1 });
    this.plot = new uPlot({
      width: this.canvas.clientWidth || 300, height: HEIGHT, padding: [10, 14, 0, 0],
      legend: { show: false }, cursor: { show: false },
      scales: { x: { time: false, range: [edges[0], edges.at(-1)] },
        y: { range: (plot, low, high) => [0, 1.05 * high] } },
      axes: [
        { ...axis, values: (_, ticks) => ticks.map(short), space: 60, size: 26 },
        { ...axis, size: 48, values: (_, ticks) =>
          ticks.map((value) => `${short(100 * value)} %`) },
      ],
      series: [{}, ...rows.map(({ hue }) => ({
        stroke: hue, fill: faint(hue, rows.length > 4 ? 0.06 : 0.16), width: 1.75,
        paths: stepped, points: { show: false },
      }))],
    }, [edges, ...rows.map(({ shares }) => [...shares, shares.at(-1)])], this.canvas);
  }

  fit() {
    const width = this.canvas.clientWidth;
    if (this.plot && width) this.plot.setSize({ width, height: HEIGHT });
  }

  drawTable(rows) {
    const number = (key, value) => (key === 'episodes' ? whole(value) : short(value));
    this.table.replaceChildren(el('table', { class: 'runs-table' },
      el('thead', {}, el('tr', {}, el('th', { scope: 'col' }, 'Runs'),
        ...FIGURES.map(([, label]) =>
          el('th', { scope: 'col', class: 'number' }, label)))),
      el('tbody', {}, ...rows.map((row) => {
        const node = el('tr', {}, el('th', { scope: 'row', class: 'name' }, row.label),
          ...FIGURES.map(([key]) => el('td', { class: 'number' }, number(key, row[key]))));
        setVars(node, { color: row.hue });
        return node;
      }))));
  }
}
