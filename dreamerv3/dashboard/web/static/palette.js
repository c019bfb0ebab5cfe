// Colors of curves: ten hues that differ in lightness as well, for each theme.

const LIGHT = [
  '#3566cf', '#d4581f', '#1f8f58', '#a93a96', '#a87b00',
  '#0f8799', '#c02d45', '#6f4fc9', '#5f7226', '#86502f',
];
const DARK = [
  '#7ea6ff', '#ff9b6a', '#5cd398', '#eb8fdc', '#efc54a',
  '#4fcbdd', '#ff8292', '#b8a2ff', '#b9cd6a', '#d8a585',
];
const INK = {
  grid: ['#ecece7', '#242932'],
  dim: ['#666b75', '#9aa1ad'],
  reference: ['#8a8f98', '#868d99'],
};
const dark = window.matchMedia('(prefers-color-scheme: dark)');

export const paletteSize = LIGHT.length;

export function isDark() {
  const theme = document.documentElement.dataset.theme;
  return theme ? theme === 'dark' : dark.matches;
}

export const color = (number) => (isDark() ? DARK : LIGHT)[number ?? 0];

// Colors of a chart besides its curves, as in style.css.
export const ink = (name) => INK[name][isDark() ? 1 : 0];

export function faint(hex, share) {
  return hex + Math.round(255 * share).toString(16).padStart(2, '0');
}

export const onSystemTheme = (listener) => dark.addEventListener('change', listener);
