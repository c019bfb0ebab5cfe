// What the page knows and what was chosen; the choices are kept in the address.

import { DEFAULTS, decode, encode } from './address.js';
import { compileFilter, matches } from './filter.js';
import { paletteSize } from './palette.js';

const FIRST_PICK = 6; // runs that are shown if nothing was chosen
export const OPTION = 'option:'; // begins the group of runs with equal options
export const LIVE = new Set(['starting', 'running', 'waiting', 'restarting', 'silent']);

export const store = {
  runs: new Map(), // id -> summary
  count: null, // runs that the server has found, also those it has not sent yet
  picked: [], // ids, in the order in which they were chosen
  colors: new Map(), // id -> number of a color
  range: null, // part of the x axis, when zoomed
  reading: {}, // id -> share of its files that the server has read, while below 1
  groups: new Map(), // id -> {index, value}: the curve that a run is part of
  groupedBy: '', // the setting that these groups are of
  options: { names: {}, runs: {} }, // how many values; id -> {option: value}
  finals: {}, // id -> final score, null if no episode has ended
  roots: [], // folders that the server was given
  settings: { ...DEFAULTS },
  filter: compileFilter(''), // the last valid one
  filterError: null,
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

// Value of an option that is a column of the table; undefined where a run lacks it.
export function optionOf(id, name) {
  const options = store.options.runs[id];
  // Any name may be in an address, also `constructor`.
  return options && Object.hasOwn(options, name) ? options[name] : undefined;
}

// Number of a run's color; runs that are drawn as one share that of their group.
export function colorOf(id) {
  const group = store.groupedBy && store.groups.get(id);
  return group ? group.index % paletteSize : store.colors.get(id);
}

// groups: [{runs, value}] as the server has made them, by a former setting perhaps.
export function takeGroups(groups, by) {
  const found = new Map();
  groups.forEach(({ runs, value }, index) => {
    for (const id of runs) found.set(id, { index, value });
  });
  const before = JSON.stringify([store.groupedBy, ...store.groups]);
  if (JSON.stringify([by, ...found]) === before) return;
  store.groups = found;
  store.groupedBy = by;
  emit('groups');
}

export function setting(name, value) {
  if (String(store.settings[name]) === String(value)) return;
  store.settings[name] = value;
  if (name === 'x') store.range = null;
  if (name === 'filter') applyFilter();
  writeAddress();
  emit('settings', name);
}

function applyFilter() {
  const found = compileFilter(store.settings.filter);
  store.filterError = found.error;
  if (found.expression) store.filter = found;
}

export function zoom(range) {
  store.range = range;
  writeAddress();
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
  const hidden = Object.values(summaries)
    .filter((run) => run.hidden && store.runs.get(run.id)?.hidden === false)
    .map(({ id }) => id);
  const changed = [];
  let renamed = false;
  const there = new Set(ids);
  for (const id of store.runs.keys()) if (!there.has(id)) store.runs.delete(id);
  for (const [id, summary] of Object.entries(summaries)) {
    const before = store.runs.get(id);
    store.runs.set(id, summary);
    if (!before || hasNewPoints(before, summary)) changed.push(id);
    renamed ||= before && before.name !== summary.name;
  }
  if (!store.chosen) choose(firstPick());
  else if (hidden.length) pick(store.picked.filter((id) => !hidden.includes(id)));
  emit('runs', Object.keys(summaries));
  if (renamed) emit('names');
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

// Those that the filter lets through; hidden ones only if asked for or chosen.
export const shownRuns = () => ordered().filter((run) =>
  (store.settings.hidden || !run.hidden || store.picked.includes(run.id)) &&
  matches(store.filter.expression, run, store.options.runs[run.id] ?? {}));

const firstPick = () => ordered().filter((run) => !run.hidden)
  .slice(0, FIRST_PICK).map((run) => run.id);

export function readAddress() {
  const { settings, runs, range } = decode(location.hash.slice(1));
  store.settings = settings;
  store.range = range;
  applyFilter();
  if (runs) {
    store.chosen = true;
    choose(runs);
  }
}

function writeAddress() {
  const { settings, picked, chosen, range } = store;
  const text = encode({ settings, range, runs: chosen ? picked : null });
  history.replaceState(null, '', `#${text}`);
}
