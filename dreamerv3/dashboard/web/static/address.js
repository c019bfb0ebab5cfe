// The address of the page: what was chosen, so that a reload and a link show the same.

export const DEFAULTS = {
  tab: 'curves', x: 'step', smooth: 0.6, log: false, group: '', reference: true,
  filter: '', hidden: false, sort: '', columns: [],
  file: '', kind: 'score', part: 'last', evals: false,
};
const CHOICES = { // what other texts in an address do not stand for
  x: ['step', 'updates', 'frames', 'time'], kind: ['score', 'length'],
  part: ['last', 'all'],
};
const SEEDS = 'seeds'; // group of runs that differ by seed only
const ID = /^[0-9a-f]{12}$/;

// {settings, runs, range} of the part of an address behind its #; runs are null if
// none were chosen.
export function decode(text) {
  const query = new URLSearchParams(text);
  const settings = { ...DEFAULTS };
  for (const [name, usual] of Object.entries(DEFAULTS)) {
    if (Array.isArray(usual)) settings[name] = query.getAll(name);
    else if (query.has(name)) settings[name] = parse(query.get(name), usual);
  }
  if (!(settings.smooth >= 0 && settings.smooth < 1)) settings.smooth = DEFAULTS.smooth;
  for (const [name, allowed] of Object.entries(CHOICES)) {
    if (!allowed.includes(settings[name])) settings[name] = DEFAULTS[name];
  }
  if (query.get('merge') === '1') settings.group = SEEDS; // of version 0.1.0
  const range = ['from', 'to'].map((name) => parseFloat(query.get(name)));
  const runs = query.has('runs')
    ? query.get('runs').split(',').filter((id) => ID.test(id)) : null;
  return { settings, runs, range: range.every(Number.isFinite) ? range : null };
}

export function encode({ settings, runs, range }) {
  const query = new URLSearchParams();
  for (const [name, usual] of Object.entries(DEFAULTS)) {
    const value = settings[name];
    if (Array.isArray(usual)) for (const one of value) query.append(name, one);
    else if (value !== usual) {
      query.set(name, typeof value === 'boolean' ? Number(value) : value);
    }
  }
  if (range) {
    query.set('from', range[0].toPrecision(8));
    query.set('to', range[1].toPrecision(8));
  }
  if (runs) query.set('runs', runs.join(','));
  return String(query);
}

function parse(text, usual) {
  if (typeof usual === 'boolean') return text === '1';
  return typeof usual === 'number' ? Number(text) : text;
}
