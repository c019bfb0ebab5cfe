// What the page knows and what was chosen; the choices are kept in the address.

import { paletteSize } from './palette.js';

const DEFAULTS = {
  tab: 'curves', x: 'step', smooth: 0.6, log: false, merge: false, reference: true,
};
const FIRST_PICK = 6; // runs that are shown if nothing was chosen
export const LIVE = new Set(['starting', 'running', 'waiting', 'restarting', 'silent']);

export const store = {
  runs: new Map(), // id -> summary
  count: null, // runs that the server has found, also those it has not sent yet
  picked: [], // ids, in the order in which they were chosen
  colors: new Map(), // id -> number of a color
  range: null, // part of the x axis, when zoomed
  reading: {}, // id -> share of its files that the server has read, while below 1
  settings: { ...DEFAULTS },
  listeners: new Map(),
  chosen: false, // whether the user has picked runs
};

// Listens until the signal, if any, is aborted.
export function on(topics, listener, signal) {
  for (const topic of topics.split(' ')) {
    if (!store.listeners.has(topic)) store.listeners.set(topic, new Set());
    const listeners = store.listeners.get(topic);
    listeners.add(listener);
    signal?.addEventListener('abort', () => listeners.delete(listener));
  }
}

export function emit(topic, detail) {
  for (const listener of [...(store.listeners.get(topic) ?? [])]) listener(detail);
}

export const pickedRuns = () =>
  store.picked.map((id) => store.runs.get(id)).filter((run) => run);

// Number of a run's color; merged seeds share that of their group.
export function colorOf(id) {
  if (!store.settings.merge) return store.colors.get(id);
  const groupOf = (run) => store.runs.get(run)?.group || run;
  const groups = [...new Set(store.picked.map(groupOf))];
  return Math.max(0, groups.indexOf(groupOf(id))) % paletteSize;
}

export function setting(name, value) {
  if (store.settings[name] === value) return;
  store.settings[name] = value;
  if (name === 'x') store.range = null;
  writeAddress();
  emit('settings', name);
}

export function zoom(range) {
  store.range = range;
  emit('zoom');
}

export function takeReading(shares) {
  if (JSON.stringify(shares) === JSON.stringify(store.reading)) return;
  store.reading = shares;
  emit('reading');
}

export function pick(ids) {
  store.chosen = true;
  choose(ids);
  writeAddress();
}

// Changed runs, {id: summary}, and the ids of all.
export function takeRuns(summaries, ids) {
  store.count = ids.length;
  const changed = [];
  const there = new Set(ids);
  for (const id of store.runs.keys()) if (!there.has(id)) store.runs.delete(id);
  for (const [id, summary] of Object.entries(summaries)) {
    const before = store.runs.get(id);
    store.runs.set(id, summary);
    if (!before || hasNewPoints(before, summary)) changed.push(id);
  }
  if (!store.chosen) choose(firstPick());
  emit('runs', Object.keys(summaries));
  const shown = changed.filter((id) => store.picked.includes(id));
  if (shown.length) emit('points', shown);
}

function hasNewPoints(before, after) {
  const names = ['metrics.jsonl', 'scores.jsonl'];
  return names.some((name) => String(before.files[name]) !== String(after.files[name]));
}

function choose(ids) {
  if (ids.join() === store.picked.join()) return;
  for (const id of store.picked) if (!ids.includes(id)) store.colors.delete(id);
  store.picked = ids;
  for (const id of ids) if (!store.colors.has(id)) store.colors.set(id, freeColor());
  emit('picked');
}

function freeColor() {
  const uses = new Array(paletteSize).fill(0);
  for (const color of store.colors.values()) uses[color] += 1;
  return uses.indexOf(Math.min(...uses));
}

export function ordered() {
  const rank = (run) => (LIVE.has(run.state) ? 0 : 1);
  return [...store.runs.values()].sort((a, b) =>
    rank(a) - rank(b) || (b.started ?? 0) - (a.started ?? 0) ||
    a.name.localeCompare(b.name));
}

const firstPick = () => ordered().slice(0, FIRST_PICK).map((run) => run.id);

export function readAddress() {
  const query = new URLSearchParams(location.hash.slice(1));
  const settings = { ...DEFAULTS };
  for (const name of ['tab', 'x']) if (query.has(name)) settings[name] = query.get(name);
  for (const name of ['log', 'merge', 'reference']) {
    if (query.has(name)) settings[name] = query.get(name) === '1';
  }
  const smooth = Number(query.get('smooth') ?? DEFAULTS.smooth);
  if (smooth >= 0 && smooth < 1) settings.smooth = smooth;
  store.settings = settings;
  if (query.has('runs')) {
    store.chosen = true;
    choose(query.get('runs').split(',').filter((id) => /^[0-9a-f]{12}$/.test(id)));
  }
}

function writeAddress() {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(store.settings)) {
    if (value === DEFAULTS[name]) continue;
    query.set(name, typeof value === 'boolean' ? Number(value) : value);
  }
  if (store.chosen) query.set('runs', store.picked.join(','));
  history.replaceState(null, '', `#${query}`);
}
