// The curves: charts in sections by name, loaded when they come into sight.

import * as api from '../api.js';
import { Chart } from '../chart.js';
import { el, setText } from '../dom.js';
import { GroupSelect } from '../group_select.js';
import { on, setting, store, takeGroups, takeReading, zoom } from '../store.js';

const OVERVIEW = [
  'scores/score', 'scores/eval/score', 'train/loss/total', 'fps/env', 'fps/train',
  'replay/train_ratio', 'train/imag/return', 'train/dyn/prior_entropy',
];
const ASKS = new Set(['x', 'group', 'reference']); // settings that need other data
const BATCH = 12; // metrics per request
const PAUSE_MS = 1000; // between two refreshes of a growing run
const NAMES_MS = 3000; // between two looks for new metrics in it

export class CurvesView {
  constructor(panel) {
    const life = new AbortController();
    const { signal } = life;
    this.life = life;
    this.charts = new Map(); // key of section and metric -> Chart
    this.visible = new Set();
    this.names = [];
    this.timer = null;
    this.namesTimer = null;
    this.reader = null; // timer of the next request while files are being read
    this.reading = false;
    this.requested = 0; // when the names were requested
    this.request = 0; // number of the newest one: responses to older ones are dropped
    this.loads = 0; // requests for series so far
    this.drawn = 0; // the newest of them that has been answered
    this.sight = new IntersectionObserver((entries) => this.seen(entries), {
      rootMargin: '200px',
    });
    this.sections = el('div', { class: 'sections' });
    this.note = el('p', { class: 'note', role: 'status' });
    panel.append(this.toolbar(), this.note, this.sections);
    on('picked', () => this.reload(), signal);
    on('points', () => this.later(), signal);
    on('settings', (name) => this.changed(name), signal);
    on('zoom', () => this.refresh(), signal);
    on('theme', () => this.each((chart) => chart.restyle()), signal);
    on('groups', () => this.each((chart) => chart.redraw()), signal);
    on('names', () => this.each((chart) => chart.rename()), signal);
    document.addEventListener('visibilitychange', () => this.later(), { signal });
    this.reload();
  }

  close() {
    this.life.abort();
    clearTimeout(this.timer);
    clearTimeout(this.namesTimer);
    clearTimeout(this.reader);
    this.sight.disconnect();
    this.each((chart) => chart.close());
  }

  get closed() {
    return this.life.signal.aborted;
  }

  each(action) {
    for (const chart of this.charts.values()) action(chart);
  }

  toolbar() {
    const { settings } = store;
    this.filter = el('input', {
      type: 'search', placeholder: 'Filter metrics', 'aria-label': 'Filter metrics',
      autocomplete: 'off', spellcheck: 'false', oninput: () => this.layout(),
    });
    const axis = (value, label) => el('label', { class: 'choice' },
      el('input', {
        type: 'radio', name: 'axis', value, checked: settings.x === value,
        onchange: () => setting('x', value),
      }), el('span', {}, label));
    const smoothed = el('output', {}, String(settings.smooth));
    const smooth = el('input', {
      type: 'range', min: 0, max: 0.99, step: 0.01, value: settings.smooth,
      oninput: (event) => {
        setText(smoothed, event.target.value);
        setting('smooth', Number(event.target.value));
      },
    });
    const flag = (name, label) => el('label', { class: `flag ${name}` },
      el('input', {
        type: 'checkbox', checked: settings[name],
        onchange: (event) => setting(name, event.target.checked),
      }), label);
    this.unzoom = el('button', {
      class: 'small', hidden: !store.range, onclick: () => zoom(null),
    }, 'Reset zoom');
    return el('div', { class: 'toolbar', role: 'toolbar', 'aria-label': 'Curves' },
      this.filter,
      el('fieldset', { class: 'choices' },
        el('legend', { class: 'hidden' }, 'Axis'),
        axis('step', 'Steps'), axis('updates', 'Updates'), axis('frames', 'Frames'),
        axis('time', 'Training time')),
      el('label', { class: 'slider' }, 'Smoothing', smooth, smoothed),
      new GroupSelect(this.life.signal).node,
      flag('log', 'Log scale'),
      flag('reference', 'Reference'),
      this.unzoom);
  }

  changed(name) {
    if (name === 'smooth' || name === 'log') this.each((chart) => chart.redraw());
    else if (ASKS.has(name)) this.refresh();
  }

  async reload() {
    if (await this.loadNames()) this.refresh();
  }

  // Loads the metrics of the chosen runs; true unless a later request replaces it.
  async loadNames() {
    const request = ++this.request;
    this.requested = performance.now();
    const found = store.picked.length ? this.answer(api.names(store.picked)) : [];
    const names = await found;
    if (request !== this.request || !names || this.closed) return false;
    if (names.join('\n') !== this.names.join('\n') || !names.length) {
      this.names = names;
      this.layout();
    }
    return true;
  }

  // The charts that there should be, keeping those that are there.
  layout() {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter((word) => word);
    const names = this.names.filter((name) =>
      words.every((word) => name.toLowerCase().includes(word)));
    const groups = new Map();
    if (words.length) groups.set('Matches', names);
    else {
      const known = OVERVIEW.filter((name) => names.includes(name));
      groups.set('Overview', known.length ? known : names.slice(0, 6));
      for (const name of names) {
        const group = name.includes('/') ? name.split('/')[0] : 'other';
        if (!groups.has(group)) groups.set(group, []);
        groups.get(group).push(name);
      }
    }
    const wanted = new Set();
    const sections = [...groups].map(([group, members]) => {
      const cards = members.map((name) => {
        wanted.add(`${group} ${name}`);
        return this.chart(`${group} ${name}`, name).node;
      });
      return this.section(group, cards);
    });
    for (const [key, chart] of this.charts) {
      if (wanted.has(key)) continue;
      this.sight.unobserve(chart.node);
      this.visible.delete(chart);
      chart.close();
      this.charts.delete(key);
    }
    this.sections.replaceChildren(...sections);
    this.describe(words.length);
  }

  section(group, cards) {
    const known = [...this.sections.children]
      .find((section) => section.dataset.group === group);
    const open = known ? known.open : group === 'Overview' || group === 'Matches';
    return el('details', { open, 'data-group': group },
      el('summary', {},
        el('h2', {}, group), el('span', { class: 'dim' }, String(cards.length))),
      el('div', { class: 'grid' }, ...cards));
  }

  chart(key, name) {
    if (!this.charts.has(key)) {
      const chart = new Chart(name);
      this.charts.set(key, chart);
      this.sight.observe(chart.node);
    }
    return this.charts.get(key);
  }

  describe(filtered) {
    let text = '';
    if (!store.picked.length) text = 'Choose runs on the left to see their curves.';
    else if (!this.names.length) text = 'No metrics have been written yet.';
    else if (filtered && !this.charts.size) text = 'No metric matches.';
    setText(this.note, text);
    this.note.hidden = !text;
  }

  seen(entries) {
    const fresh = [];
    for (const { target, isIntersecting } of entries) {
      const chart = [...this.charts.values()].find((one) => one.node === target);
      if (!chart) continue;
      if (!isIntersecting) this.visible.delete(chart);
      else if (!this.visible.has(chart)) {
        this.visible.add(chart);
        fresh.push(chart);
      }
    }
    if (fresh.length) this.load(fresh);
  }

  // Soon, but not more often than the pauses allow, however fast the run writes.
  later() {
    if (this.closed || document.hidden) return;
    this.timer ??= setTimeout(() => {
      this.timer = null;
      this.refresh();
    }, PAUSE_MS);
    this.namesTimer ??= setTimeout(() => {
      this.namesTimer = null;
      this.loadNames();
    }, Math.max(PAUSE_MS, this.requested + NAMES_MS - performance.now()));
  }

  // The server reads long files during requests: sends the next one at once until all
  // is read, and looks for metrics that begin late.
  readOn(reading) {
    if (!reading && !this.reading) return;
    this.reading = reading;
    this.reader ??= setTimeout(async () => {
      this.reader = null;
      if (!reading || performance.now() > this.requested + NAMES_MS) await this.loadNames();
      if (reading) this.load([...this.visible]);
    });
  }

  refresh() {
    this.unzoom.hidden = !store.range;
    this.load([...this.visible]);
  }

  async load(charts) {
    let reading = false;
    for (let start = 0; start < charts.length; start += BATCH) {
      const part = charts.slice(start, start + BATCH);
      const metrics = [...new Set(part.map((chart) => chart.name))];
      const picked = store.picked.join();
      const { x: axis, group } = store.settings;
      const number = ++this.loads;
      const answer = await this.answer(
        api.series(store.picked, metrics, store.settings, store.range));
      if (this.closed || !answer || picked !== store.picked.join()) return;
      takeReading(answer.reading);
      if (number > this.drawn) {
        this.drawn = number;
        takeGroups(answer.groups, group);
      }
      reading = Object.keys(answer.reading).length > 0;
      for (const chart of part) {
        const band = chart.name.endsWith('score') ? answer.reference : [];
        // Responses may overtake each other: the newest request of a chart counts.
        if (chart.number > number) continue;
        chart.number = number;
        chart.show(answer.charts[chart.name], band, axis);
      }
    }
    this.readOn(reading);
  }

  async answer(response) {
    try {
      return await response;
    } catch (error) {
      // The header says that the server is not reached; the request is repeated.
      if (!(error instanceof TypeError)) throw error;
      this.later();
      return null;
    }
  }
}
