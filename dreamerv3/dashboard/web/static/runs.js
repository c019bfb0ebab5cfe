// The list of runs: state, progress, restarts, and which are shown.

import { badge, el, setText, setVars } from './dom.js';
import { percent, plural, short } from './format.js';
import { color } from './palette.js';
import { colorOf, on, ordered, pick, store } from './store.js';

const byId = (id) => document.getElementById(id);

export class RunList {
  constructor() {
    this.items = new Map(); // id -> {node, show}
    this.filter = byId('run-filter');
    this.filter.addEventListener('input', () => this.draw());
    byId('pick-shown').addEventListener('click', () =>
      pick(this.shown().map((run) => run.id)));
    byId('pick-none').addEventListener('click', () => pick([]));
    on('runs picked reading settings theme', () => this.draw());
    this.draw();
  }

  shown() {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter((word) => word);
    return ordered().filter((run) => {
      const text = `${run.name} ${run.task} ${run.state}`.toLowerCase();
      return words.every((word) => text.includes(word));
    });
  }

  draw() {
    const runs = this.shown();
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
}

const emptyText = (total) =>
  total ? 'No run matches.' : 'No runs here yet. They appear by themselves.';

function makeItem(id) {
  const box = el('input', { type: 'checkbox' });
  box.addEventListener('change', () => {
    const others = store.picked.filter((other) => other !== id);
    pick(box.checked ? [...others, id] : others);
  });
  const name = el('span', { class: 'name' });
  const facts = el('span', { class: 'facts' });
  const node = el('li', {}, el('label', { class: 'run' }, box, name, facts));

  function show(run) {
    const chosen = store.picked.includes(id);
    box.checked = chosen;
    setVars(node, { color: chosen ? color(colorOf(id)) : 'transparent' });
    setText(name, run.name);
    name.title = run.path;
    const parts = [badge(run.state), el('span', {}, run.task || 'no config')];
    if (typeof run.step === 'number') {
      parts.push(el('span', {}, `${short(run.step)} steps`));
    }
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
