// The table of runs: sorted by any column, with options as further columns.

import * as api from '../api.js';
import { saveCsv } from '../chart_files.js';
import { columns, sorted, textOf } from '../columns.js';
import { badge, el, setText, setVars } from '../dom.js';
import { color } from '../palette.js';
import { colorOf, emit, on, OPTION, pick, setting, shownRuns, store } from '../store.js';

const PAUSE_MS = 3000; // between two requests for scores that have changed

export class TableView {
  constructor(panel) {
    this.life = new AbortController();
    const { signal } = this.life;
    this.rows = new Map(); // id -> row
    this.keys = null; // of the columns that are drawn
    this.stamps = null; // of the scores that were asked for
    this.timer = null;
    this.body = el('tbody');
    this.head = el('tr');
    this.note = el('p', { class: 'note', role: 'status' });
    this.place = el('div', { class: 'scroll', tabindex: 0, role: 'region',
      'aria-label': 'Table of runs' },
    el('table', { class: 'runs-table' }, el('thead', {}, this.head), this.body));
    panel.append(this.toolbar(), this.note, this.place);
    on('runs picked settings options groups finals theme', () => this.draw(), signal);
    on('options', () => this.offer(), signal);
    on('runs', () => this.loadFinals(), signal);
    this.offer();
    this.draw();
    this.loadFinals();
  }

  close() {
    this.life.abort();
    clearTimeout(this.timer);
  }

  toolbar() {
    this.names = el('datalist', { id: 'option-names' });
    this.problem = el('span', { class: 'problem', role: 'alert' });
    this.add = el('input', {
      type: 'search', list: 'option-names', placeholder: 'Add an option as column',
      'aria-label': 'Add an option as column', autocomplete: 'off', spellcheck: 'false',
      onchange: () => this.addColumn(),
    });
    return el('div', { class: 'toolbar', role: 'toolbar', 'aria-label': 'Table' },
      this.add, this.names, this.problem,
      el('button', { class: 'small', onclick: () => this.download() }, 'CSV of the table'));
  }

  offer() {
    const { names } = store.options;
    const order = Object.keys(names).sort((a, b) => (names[b] > 1) - (names[a] > 1));
    this.names.replaceChildren(...order.map((name) => el('option', {
      value: name, label: names[name] > 1 ? `${names[name]} values` : 'all the same',
    })));
    if (this.problem.textContent) this.addColumn(); // it may be known now
  }

  addColumn() {
    const name = this.add.value.trim();
    const { columns: chosen } = store.settings;
    const known = Object.hasOwn(store.options.names, name);
    setText(this.problem, name && !known
      ? `No run has an option ${name}. Type a part of a name to see those there are.` : '');
    if (!known) return;
    this.add.value = '';
    if (!chosen.includes(name)) setting('columns', [...chosen, name]);
  }

  draw() {
    const runs = sorted(shownRuns(), store.settings.sort);
    const all = columns();
    const keys = JSON.stringify([all.map(({ key }) => key), store.settings.sort]);
    if (keys !== this.keys) this.drawHead(all, keys);
    const nodes = runs.map((run) => {
      if (!this.rows.has(run.id)) this.rows.set(run.id, makeRow(run.id, all));
      const row = this.rows.get(run.id);
      row.show(run);
      return row.node;
    });
    if (nodes.length !== this.body.children.length ||
        nodes.some((node, index) => node !== this.body.children[index])) {
      const focus = document.activeElement;
      this.body.replaceChildren(...nodes);
      if (this.body.contains(focus)) focus.focus();
    }
    this.place.hidden = !nodes.length;
    const hidden = [...store.runs.values()].some((run) => run.hidden);
    setText(this.note, nodes.length || !store.count ? ''
      : `No run matches the filter${hidden ? ', or all that do are hidden' : ''}.`);
    this.note.hidden = !this.note.textContent;
  }

  drawHead(all, keys) {
    const focus = document.activeElement?.dataset?.key;
    this.keys = keys;
    this.rows.clear();
    this.head.replaceChildren(
      el('th', { scope: 'col' }, el('span', { class: 'hidden' }, 'Shown in curves')),
      ...all.map(makeHead),
      el('th', { scope: 'col', class: 'do' },
        el('span', { class: 'hidden' }, 'Edit')));
    if (focus) this.head.querySelector(`[data-key="${CSS.escape(focus)}"]`)?.focus();
  }

  // Asks for scores when their files have changed, and again until all are read.
  loadFinals() {
    const stamps = JSON.stringify([...store.runs]
      .map(([id, run]) => [id, run.files['scores.jsonl']]));
    if (this.timer !== null || stamps === this.stamps) return;
    const pause = this.stamps === null ? 0 : PAUSE_MS;
    this.timer = setTimeout(async () => {
      const waiting = await this.askForFinals();
      this.timer = null;
      if (this.life.signal.aborted || waiting === null) return;
      this.stamps = waiting ? null : stamps;
      this.loadFinals();
    }, pause);
  }

  async askForFinals() {
    try {
      const { scores, waiting } = await api.finals();
      store.finals = scores;
      emit('finals');
      return waiting > 0;
    } catch (error) {
      // The header says that the server is not reached; asked again with new runs.
      console.info('no response:', error.message);
      this.stamps = '';
      return null;
    }
  }

  download() {
    const all = columns();
    const rows = sorted(shownRuns(), store.settings.sort).map((run) =>
      [...all.map((column) => column.value(run)), run.notes, run.path]);
    const heads = [...all.map(({ label }) => label), 'Notes', 'Folder'];
    saveCsv([heads, ...rows], 'runs.csv');
  }
}

function makeHead(column) {
  const { key, label, title, option, number } = column;
  const { sort } = store.settings;
  const direction = sort === key ? 'ascending' : sort === `-${key}` ? 'descending' : 'none';
  // Numbers are looked through from the largest.
  const first = number ? `-${key}` : key;
  const second = number ? key : `-${key}`;
  const next = sort === first ? second : sort === second ? '' : first;
  const mark = { ascending: ' ▲', descending: ' ▼', none: '' }[direction];
  const button = el('button', {
    class: 'quiet', title, 'data-key': key, onclick: () => setting('sort', next),
  }, label, el('span', { 'aria-hidden': 'true' }, mark));
  const remove = option === undefined ? null : el('button', {
    class: 'quiet small', 'aria-label': `Remove the column ${option}`,
    onclick: () => setting('columns',
      store.settings.columns.filter((name) => OPTION + name !== key)),
  }, '×');
  return el('th', { scope: 'col', 'aria-sort': direction, class: number ? 'number' : '' },
    el('span', { class: 'head' }, button, remove));
}

function makeRow(id, all) {
  const box = el('input', { type: 'checkbox' });
  box.addEventListener('change', () => {
    const others = store.picked.filter((other) => other !== id);
    pick(box.checked ? [...others, id] : others);
  });
  const cells = all.map(({ key, number }) =>
    el(key === 'name' ? 'th' : 'td', {
      scope: key === 'name' ? 'row' : null, class: number ? 'number' : key,
    }));
  const edit = el('button', {
    class: 'small', onclick: () => emit('edit', store.runs.get(id)),
  }, 'Edit');
  const node = el('tr', {},
    el('td', { class: 'pick' }, el('label', {}, box)), ...cells,
    el('td', { class: 'do' }, edit));

  function show(run) {
    const chosen = store.picked.includes(id);
    box.checked = chosen;
    box.setAttribute('aria-label', `Show ${run.name} in curves`);
    edit.setAttribute('aria-label', `Edit ${run.name}`);
    setVars(node, { color: chosen ? color(colorOf(id)) : 'transparent' });
    node.classList.toggle('is-hidden', run.hidden);
    all.forEach((column, index) => {
      const text = textOf(column, run);
      const cell = cells[index];
      const isName = column.key === 'name';
      const whole = isName ? text + run.notes : text;
      if (cell.textContent === whole) return;
      if (column.key === 'state') cell.replaceChildren(badge(text));
      else cell.textContent = text;
      if (isName && run.notes) {
        cell.append(el('span', { class: 'notes', title: run.notes }, run.notes));
      }
      cell.title = isName ? run.path : column.hint?.(column.value(run)) ?? text;
    });
  }
  return { node, show };
}
