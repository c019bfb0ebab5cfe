// Options of the chosen runs side by side, those that differ at first.

import { followDetails } from '../details.js';
import { el, setText, setVars } from '../dom.js';
import { color } from '../palette.js';
import { store } from '../store.js';

export class OptionsView {
  constructor(panel) {
    this.life = new AbortController();
    this.all = [];
    this.filter = el('input', {
      type: 'search', placeholder: 'Filter options', 'aria-label': 'Filter options',
      autocomplete: 'off', spellcheck: 'false', oninput: () => this.draw(),
    });
    this.only = el('input', { type: 'checkbox', onchange: () => this.draw() });
    this.only.checked = true;
    this.count = el('span', { class: 'dim', role: 'status' });
    this.place = el('div', { class: 'scroll', tabindex: 0, role: 'region',
      'aria-label': 'Table of options' });
    panel.append(
      el('div', { class: 'toolbar' }, this.filter,
        el('label', { class: 'flag' }, this.only, 'Only differences'), this.count),
      this.place);
    followDetails(['config.yaml'], (all) => {
      this.all = all;
      this.draw();
    }, this.life.signal);
  }

  close() {
    this.life.abort();
  }

  draw() {
    const several = this.all.length > 1;
    this.only.disabled = !several;
    const names = new Set(this.all.flatMap(([, { options }]) => Object.keys(options)));
    const words = this.filter.value.toLowerCase().split(/\s+/).filter((word) => word);
    const rows = [];
    for (const name of names) {
      if (!words.every((word) => name.toLowerCase().includes(word))) continue;
      const values = this.all.map(([, { options }]) => text(options, name));
      const differs = new Set(values).size > 1;
      if (several && this.only.checked && !differs) continue;
      rows.push(el('tr', { class: differs ? 'differs' : '' },
        el('th', { scope: 'row' }, name),
        ...values.map((value) => el('td', {}, value))));
    }
    setText(this.count, `${rows.length} of ${names.size} options`);
    this.place.replaceChildren(rows.length ? this.table(rows)
      : el('p', { class: 'note' }, this.empty(names.size)));
  }

  table(rows) {
    const heads = this.all.map(([run]) => {
      const head = el('th', { scope: 'col' }, el('i', {}), run.name);
      setVars(head, { color: color(store.colors.get(run.id)) });
      return head;
    });
    return el('table', { class: 'options' },
      el('thead', {}, el('tr', {}, el('th', { scope: 'col' }, 'Option'), ...heads)),
      el('tbody', {}, ...rows));
  }

  empty(known) {
    if (!this.all.length) return 'Choose runs to see their options.';
    if (!known) return 'These runs have no config.yaml.';
    return this.filter.value ? 'No option matches.' : 'These runs have the same options.';
  }
}

function text(options, name) {
  return name in options ? String(options[name]) : '–';
}
