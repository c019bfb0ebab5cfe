// Numbers, times and names as people read them.

const LARGE = [[1e12, 'T'], [1e9, 'B'], [1e6, 'M'], [1e3, 'k']];

// 1234567 -> 1.23M; 0.012345 -> 0.0123
export function short(value) {
  if (typeof value !== 'number' || !Number.isFinite(value)) return '–';
  const size = Math.abs(value);
  for (const [unit, letter] of LARGE) {
    if (size >= unit) return trim((value / unit).toPrecision(3)) + letter;
  }
  if (size !== 0 && size < 1e-3) return value.toExponential(1);
  return trim(value.toPrecision(3));
}

const trim = (text) => (text.includes('.') ? text.replace(/\.?0+$/, '') : text);

export function bytes(count) {
  if (!Number.isFinite(count)) return '–';
  return count < 1e9 ? `${trim((count / 1e6).toPrecision(3))} MB`
    : `${trim((count / 1e9).toPrecision(3))} GB`;
}

export const whole = (value) =>
  typeof value === 'number' ? Math.round(value).toLocaleString('en-US') : '–';

export const plural = (count, word) => `${count} ${word}${count === 1 ? '' : 's'}`;

export const percent = (share) =>
  typeof share === 'number' ? `${Math.round(100 * share)} %` : '–';

export function duration(seconds) {
  if (typeof seconds !== 'number') return '–';
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export const clock = (time) =>
  typeof time === 'number'
    ? new Date(time * 1000).toLocaleString('en-GB', { hour12: false })
    : '–';

// 2026-11-19 21:04, which fits into a column.
export const minute = (time) => {
  if (typeof time !== 'number') return '–';
  const date = new Date(time * 1000);
  const day = date.toLocaleDateString('sv-SE'); // year-month-day
  return `${day} ${date.toLocaleTimeString('sv-SE').slice(0, 5)}`;
};

// Hours and minutes on an axis of seconds.
export function axisTime(seconds) {
  if (seconds < 120) return `${trim(seconds.toPrecision(3))} s`;
  if (seconds < 7200) return `${trim((seconds / 60).toPrecision(3))} min`;
  return `${trim((seconds / 3600).toPrecision(3))} h`;
}

export const splitName = (name) => {
  const cut = name.lastIndexOf('/') + 1;
  return [name.slice(0, cut), name.slice(cut)];
};
