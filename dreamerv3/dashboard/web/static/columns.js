// Columns of the table of runs: what they show, and the order of their values.

import { duration, minute, short, whole } from './format.js';
import { OPTION, optionOf, store } from './store.js';

const NOTHING = '–';

// Seconds of training, or since the first line for runs that do not count them.
function seconds({ latest, started, updated }) {
  if (typeof latest['run/seconds'] === 'number') return latest['run/seconds'];
  const known = typeof started === 'number' && typeof updated === 'number';
  return known ? updated - started : null;
}

const BASIC = [
  { key: 'name', label: 'Run', value: (run) => run.name },
  { key: 'state', label: 'State', value: (run) => run.state },
  { key: 'task', label: 'Task', value: (run) => run.task, empty: 'no config' },
  {
    key: 'score', label: 'Final score', number: true,
    title: "Mean of the episodes in the last tenth of the run's steps, so far",
    value: ({ id }) => store.finals[id],
    text: (value, { id }) => (value === undefined ? 'reading'
      : value === null ? 'no episode' : short(value)),
  },
  { key: 'steps', label: 'Steps', number: true, value: (run) => run.step,
    text: (value) => (typeof value === 'number' ? short(value) : 'none'),
    hint: (value) => whole(value) },
  { key: 'duration', label: 'Duration', number: true, value: seconds,
    title: 'Time of training, without pauses',
    text: (value) => (typeof value === 'number' ? duration(value) : NOTHING) },
  { key: 'seed', label: 'Seed', number: true, value: (run) => run.seed },
  { key: 'started', label: 'Started', value: (run) => run.started, text: minute },
];

function optionColumn(name) {
  return {
    key: OPTION + name, label: name, option: name,
    value: ({ id }) => optionOf(id, name),
  };
}

export const columns = () => [...BASIC, ...store.settings.columns.map(optionColumn)];

export function textOf(column, run) {
  const value = column.value(run);
  if (column.text) return column.text(value, run);
  return isMissing(value) ? column.empty ?? NOTHING : String(value);
}

// The runs by a column, `-` in front of its key for the largest first; those that
// lack a value come last in both directions.
export function sorted(runs, sort) {
  const key = sort.replace(/^-/, '');
  const column = columns().find((one) => one.key === key);
  if (!column) return runs;
  const sign = sort.startsWith('-') ? -1 : 1;
  const rows = runs.map((run) => [column.value(run), run]);
  rows.sort(([a], [b]) => isMissing(a) - isMissing(b) ||
    (isMissing(a) ? 0 : sign * compare(a, b)));
  return rows.map(([, run]) => run);
}

const isMissing = (value) => value === null || value === undefined || value === '';

function compare(a, b) {
  if (typeof a === 'number' && typeof b === 'number') return a - b;
  return String(a).localeCompare(String(b), 'en', { numeric: true });
}
