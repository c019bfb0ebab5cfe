// Events of the chosen runs in one table, the newest first.

import { followDetails } from '../details.js';
import { badge, el, setVars } from '../dom.js';
import { clock } from '../format.js';
import { color } from '../palette.js';
import { store } from '../store.js';

const MOST_ROWS = 500;

export class EventsView {
  constructor(panel) {
    this.life = new AbortController();
    this.place = el('div', { class: 'scroll', tabindex: 0, role: 'region',
      'aria-label': 'Table of events' });
    panel.append(this.place);
    followDetails(['events.jsonl'], (all) => this.draw(all), this.life.signal);
  }

  close() {
    this.life.abort();
  }

  draw(all) {
    const rows = all.flatMap(([run, { events }]) =>
      events.map((event) => ({ run, event })));
    rows.sort((a, b) => (b.event.time ?? 0) - (a.event.time ?? 0));
    if (!rows.length) {
      this.place.replaceChildren(el('p', { class: 'note' },
        all.length ? 'Nothing has happened yet.' : 'Choose runs to see their events.'));
      return;
    }
    const heads = ['Time', 'Run', 'Event', 'Details'];
    this.place.replaceChildren(el('table', { class: 'events' },
      el('thead', {}, el('tr', {},
        ...heads.map((head) => el('th', { scope: 'col' }, head)))),
      el('tbody', {}, ...rows.slice(0, MOST_ROWS).map(row))));
  }
}

function row({ run, event: { time, event, ...rest } }) {
  const name = el('td', { class: 'run-title' }, el('i', {}), run.name);
  setVars(name, { color: color(store.colors.get(run.id)) });
  const what = rest.state ? `${event} ${rest.state}` : String(event);
  return el('tr', {},
    el('td', { class: 'time' }, clock(time)), name,
    el('td', {}, badge(kind(event, rest), what)),
    el('td', { class: 'details' }, describe(rest)));
}

function kind(event, { state, reason }) {
  if (state) return String(state);
  if (event === 'stop') return reason === 'done' ? 'done' : 'failed';
  return { start: 'starting', resume: 'restarting', rewind: 'silent',
    save_failed: 'failed' }[event] ?? 'done';
}

const describe = (rest) =>
  Object.entries(rest).filter(([name]) => name !== 'state')
    .map(([name, value]) =>
      `${name} ${typeof value === 'string' ? value : JSON.stringify(value)}`)
    .join(' · ');
