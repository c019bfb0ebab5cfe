// The list of runs: state, progress, restarts, and which are shown.

import { badge, el, setText, setVars } from './dom.js';
import { percent, plural, short } from './format.js';
import { color } from './palette.js';
import { colorOf, emit, on, pick, setting, shownRuns, store } from './store.js';

const byId = (id) => document.getElementById(id);

export class RunList {
  constructor() {
    this.items = new Map(); // id -> {node, show}
    const filter = byId('run-filter');
    filter.value = store.settings.filter;
    filter.addEventListener('input', () => setting('filter', filter.value));
    byId('pick-shown').addEventListener('click', () =>
      pick(shownRuns().map((run) => run.id)));
    byId('pick-none').addEventListener('click', () => pick([]));
    const hidden = byId('hidden-runs').querySelector('input');
    hidden.checked = store.settings.hidden;
    hidden.addEventListener('change', () => setting('hidden', hidden.checked));
    on('runs picked reading settings groups options theme', () => this.draw());
    this.draw();
  }

  draw() {
    const runs = shownRuns();
    this.drawFilter();
    const total = store.count ?? 0;
    setText(byId('run-count'),
      runs.length === total ? `${total}` : `${runs.length} of ${total}`);
    for (const id of this.items.keys()) {
      if (!store.runs.has(id)) this.items.delete(id);
    }
    const nodes = runs.map((run) => {
      if (!this.items.has(run.id)) this.items.set(run.id, makeItem(run.id));
      const item = this.items.get(run.id);
      item.show(run);
      return item.node;
    });
    const list = byId('run-list');
    // Moving nodes would take the focus away: only when the order is another.
    if (nodes.some((node, index) => node !== list.children[index]) ||
        nodes.length !== list.children.length) {
      const focus = document.activeElement;
      list.replaceChildren(...nodes);
      if (list.contains(focus)) focus.focus();
    }
    if (!nodes.length) list.append(el('li', { class: 'empty' }, emptyText(total)));
  }

  drawFilter() {
    const error = byId('filter-error');
    setText(error, store.filterError ?? '');
    error.hidden = !store.filterError;
    byId('run-filter').setAttribute('aria-invalid', Boolean(store.filterError));
    const count = [...store.runs.values()].filter((run) => run.hidden).length;
    const hidden = byId('hidden-runs');
    hidden.hidden = !count;
    setText(hidden.querySelector('span'), `Show hidden runs (${count})`);
  }
}

const emptyText = (total) =>
  total ? 'No run matches.' : 'No runs here yet.';

function makeItem(id) {
  const box = el('input', { type: 'checkbox' });
  box.addEventListener('change', () => {
    const others = store.picked.filter((other) => other !== id);
    pick(box.checked ? [...others, id] : others);
  });
  const name = el('span', { class: 'name' });
  const facts = el('span', { class: 'facts' });
  const notes = el('span', { class: 'notes' });
  const edit = el('button', {
    class: 'quiet small edit', onclick: () => emit('edit', store.runs.get(id)),
  }, 'Edit');
  const node = el('li', {},
    el('label', { class: 'run' }, box, name, facts, notes), edit);

  function show(run) {
    const chosen = store.picked.includes(id);
    box.checked = chosen;
    setVars(node, { color: chosen ? color(colorOf(id)) : 'transparent' });
    node.classList.toggle('is-hidden', run.hidden);
    setText(name, run.name);
    name.title = run.path;
    setText(notes, run.notes);
    notes.title = run.notes;
    edit.setAttribute('aria-label', `Edit ${run.name}: name, notes, hide`);
    const parts = [badge(run.state), el('span', {}, run.task || 'no config')];
    if (typeof run.step === 'number') {
      parts.push(el('span', {}, `${short(run.step)} steps`));
    }
    if (run.hidden) parts.push(el('span', {}, 'hidden'));
    const restarts = run.restarts + run.resumes;
    if (restarts) {
      parts.push(el('span', { class: 'warn' }, plural(restarts, 'restart')));
    }
    const share = store.reading[id];
    if (chosen && share !== undefined) {
      parts.push(el('span', { class: 'dim' }, `reading ${percent(share)}`));
    }
    facts.replaceChildren(...parts);
  }
  return { node, show };
}
