// The log of a role of a run: its end, and what is added to it while one looks.

import * as api from '../api.js';
import { followDetails } from '../details.js';
import { el, setText } from '../dom.js';
import { bytes } from '../format.js';
import { setting, store } from '../store.js';

const MOST_TEXT = 2_000_000; // characters that the page keeps
const NEAR_END = 40; // pixels from the end at which new lines are followed
const FIRST = ['agent.log', 'replay.log', 'logger.log']; // of the list

export class LogsView {
  constructor(panel) {
    this.life = new AbortController();
    this.source = null;
    this.shown = ''; // run and file of the stream
    this.listed = ''; // names in the list of logs
    this.logs = new Map(); // value of the choice -> {run, file, bytes}
    this.select = el('select', { onchange: () => setting('file', this.select.value) });
    this.select.addEventListener('change', () => this.open());
    this.follow = el('input', { type: 'checkbox', onchange: () => this.toEnd() });
    this.follow.checked = true;
    this.whole = el('a', { class: 'button small' }, 'Download');
    this.state = el('span', { class: 'dim', role: 'status' });
    this.bar = el('div', { class: 'toolbar', role: 'toolbar', 'aria-label': 'Log' },
      el('label', { class: 'flag wide' }, 'Role', this.select),
      el('label', { class: 'flag' }, this.follow, 'Follow the end'),
      this.whole, this.state);
    this.text = document.createTextNode('');
    this.lines = el('pre', { class: 'log-text', tabindex: 0, role: 'region',
      'aria-label': 'Lines of the log', onscroll: () => this.scrolled() }, this.text);
    this.note = el('p', { class: 'note' });
    panel.append(this.bar, this.note, this.lines);
    document.addEventListener('visibilitychange', () => this.pause(),
      { signal: this.life.signal });
    followDetails(['status.json', 'events.jsonl'], (all) => this.offer(all),
      this.life.signal);
  }

  close() {
    this.life.abort();
    this.source?.close();
  }

  // The logs of the chosen runs; a role that starts adds one.
  offer(all) {
    this.logs.clear();
    const items = [];
    const groups = all.filter(([, { logs }]) => logs.length).map(([run, { logs }]) => {
      const rank = ({ file }) => (FIRST.indexOf(file) + FIRST.length + 1) %
        (FIRST.length + 1);
      const own = [...logs].sort((a, b) => rank(a) - rank(b)).map((log) => {
        const value = `${run.id}/${log.file}`;
        this.logs.set(value, { run: run.id, ...log });
        return el('option', { value }, `${log.file.replace(/\.log$/, '')}, ${
          bytes(log.bytes)}`);
      });
      items.push(...own);
      return el('optgroup', { label: run.name }, ...own);
    });
    this.list(groups, items);
    const { file } = store.settings;
    const chosen = this.logs.has(file) ? file : [...this.logs.keys()][0] ?? '';
    this.select.value = chosen;
    this.bar.hidden = this.lines.hidden = !chosen;
    this.note.hidden = Boolean(chosen);
    setText(this.note, all.length
      ? 'These runs have no logs: the roles of a distributed run (dreamer parallel) have ' +
        'one each, and a run in one process prints to its terminal.'
      : 'Choose runs to see the logs of their roles.');
    this.open();
  }

  // An open list stays open while the logs in it grow.
  list(groups, items) {
    const same = JSON.stringify([groups.map(({ label }) => label), [...this.logs.keys()]]);
    if (same === this.listed) {
      items.forEach((item, index) => setText(this.select.options[index],
        item.textContent));
      return;
    }
    this.listed = same;
    this.select.replaceChildren(...groups);
  }

  open() {
    const chosen = this.select.value;
    if (chosen === this.shown) return;
    this.source?.close();
    this.source = null;
    this.shown = chosen;
    this.text.data = '';
    const log = this.logs.get(chosen);
    if (!log) return;
    this.whole.href = api.logAddress(log.run, log.file);
    this.whole.download = log.file;
    setText(this.state, 'reading');
    this.source = api.followLog(log.run, log.file, (part) => this.add(part), (open) =>
      setText(this.state, open ? 'live' : 'not reached, trying again'));
  }

  // A browser has six connections to a server, for all of its pages: one that is not
  // looked at leaves them to the others, unless that would lose the place in the text.
  pause() {
    if (!document.hidden) this.open();
    else if (this.follow.checked) {
      this.source?.close();
      this.source = null;
      this.shown = '';
    }
  }

  add({ text, first, skipped }) {
    if (first) {
      this.text.data = skipped ? `… ${bytes(skipped)} before this: see Download\n` : '';
    }
    this.text.appendData(text);
    if (this.text.length > MOST_TEXT) this.text.deleteData(0, MOST_TEXT / 2);
    this.lines.classList.toggle('is-empty', !this.text.length);
    this.toEnd();
  }

  toEnd() {
    if (this.follow.checked) this.lines.scrollTop = this.lines.scrollHeight;
  }

  // Reading further up stops the following, and going back to the end resumes it.
  scrolled() {
    const { scrollHeight, scrollTop, clientHeight } = this.lines;
    this.follow.checked = scrollHeight - scrollTop - clientHeight < NEAR_END;
  }
}
