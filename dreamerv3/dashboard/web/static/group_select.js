// The choice of which runs are drawn as one: seeds, or those with equal options.

import { el } from './dom.js';
import { on, OPTION, setting, store } from './store.js';

export class GroupSelect {
  constructor(signal) {
    this.select = el('select', {
      onchange: () => setting('group', this.select.value),
    });
    this.node = el('label', { class: 'flag' }, 'Group by', this.select);
    this.names = null;
    on('options', () => this.draw(), signal);
    this.draw();
  }

  draw() {
    const { names } = store.options;
    const text = JSON.stringify(names);
    if (text === this.names) return; // an open list stays open
    this.names = text;
    const { group } = store.settings;
    const known = Object.keys(names);
    const chosen = group.startsWith(OPTION) ? group.slice(OPTION.length) : null;
    if (chosen && !known.includes(chosen)) known.push(chosen);
    const differ = known.filter((name) => names[name] !== 1);
    const others = known.filter((name) => names[name] === 1);
    const item = (value, label) =>
      el('option', { value, selected: value === group }, label);
    const part = (label, members) => members.length
      ? el('optgroup', { label }, ...members.map((name) => item(OPTION + name, name)))
      : null;
    this.select.replaceChildren(...[
      item('', 'Nothing'), item('seeds', 'Seeds'),
      part('Options that differ', differ), part('Other options', others),
    ].filter((node) => node));
    this.select.value = group;
  }
}
