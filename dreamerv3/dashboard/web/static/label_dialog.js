// The dialog in which a run gets a name, notes, and is hidden.

import { changeLabel } from './api.js';
import { el, setText } from './dom.js';
import { store } from './store.js';

export class LabelDialog {
  constructor() {
    this.run = null;
    this.title = el('h2', {});
    this.path = el('p', { class: 'dim path' });
    this.name = el('input', { type: 'text', maxlength: 200, autocomplete: 'off' });
    this.notes = el('textarea', { rows: 6, maxlength: 20000 });
    this.hidden = el('input', { type: 'checkbox' });
    this.problem = el('p', { class: 'problem', role: 'alert' });
    this.save = el('button', { type: 'submit', class: 'primary' }, 'Save');
    const cancel = el('button', { type: 'button', onclick: () => this.node.close() },
      'Cancel');
    this.node = el('dialog', { class: 'label', 'aria-label': 'Edit a run' },
      el('form', { onsubmit: (event) => this.submit(event) },
        this.title, this.path,
        el('label', {}, 'Name', this.name),
        el('label', {}, 'Notes', this.notes),
        el('label', { class: 'flag' }, this.hidden, 'Hide this run in the lists'),
        this.problem,
        el('div', { class: 'buttons' }, cancel, this.save)));
    document.body.append(this.node);
  }

  open(run) {
    this.run = run;
    setText(this.title, `Edit ${run.name}`);
    setText(this.path, run.path);
    this.before = labelOf(run);
    this.refused = false;
    this.name.placeholder = run.folder;
    this.name.value = this.before.name;
    this.notes.value = this.before.notes;
    this.hidden.checked = this.before.hidden;
    setText(this.problem, '');
    this.node.showModal();
    this.name.focus();
  }

  async submit(event) {
    event.preventDefault();
    // The refusal has told what the run has now.
    if (this.refused) this.before = labelOf(store.runs.get(this.run.id) ?? this.run);
    const now = { name: this.name.value.trim(), notes: this.notes.value,
      hidden: this.hidden.checked };
    const changed = Object.keys(now).filter((field) => now[field] !== this.before[field]);
    if (!changed.length) {
      this.node.close();
      return;
    }
    const part = (fields) => Object.fromEntries(changed.map((key) => [key, fields[key]]));
    this.save.disabled = true;
    try {
      await changeLabel(this.run.id, part(now), part(this.before));
      this.node.close();
    } catch (error) {
      setText(this.problem, error instanceof TypeError
        ? 'The server is not reached. Nothing is saved; try again.' : error.message);
      this.refused = true;
    } finally {
      this.save.disabled = false;
    }
  }
}

const labelOf = ({ label, notes, hidden }) => ({ name: label, notes, hidden });
