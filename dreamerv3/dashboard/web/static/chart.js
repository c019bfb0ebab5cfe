// One chart: curves of a metric with bands, read by mouse, touch and keyboard.

import { downloadCsv, downloadPicture } from './chart_files.js';
import { el, setText, setVars } from './dom.js';
import { axisTime, plural, short, splitName, whole } from './format.js';
import { color, faint, ink } from './palette.js';
import { smooth } from './smooth.js';
import { colorOf, OPTION, store, zoom } from './store.js';
import uPlot from './vendor/uPlot.esm.js';

const HEIGHT = 190; // pixels
const MOST_LABELS = 6; // curves that are named below a chart
const BAND = 0.14; // opacity

export class Chart {
  constructor(name) {
    this.name = name;
    this.data = null;
    this.number = 0; // of the request that the data answer
    this.plot = null;
    const [prefix, last] = splitName(name);
    this.legend = el('ul', { class: 'legend' });
    this.place = el('span', { class: 'place dim' });
    this.scale = el('p', { class: 'scale dim' });
    this.canvas = el('div', {
      class: 'plot', tabindex: 0, role: 'group', 'aria-roledescription': 'chart',
      onkeydown: (event) => this.key(event),
    });
    this.wide = el('button', {
      class: 'quiet small', 'aria-pressed': 'false',
      'aria-label': `Enlarge ${name}`, onclick: () => this.enlarge(),
    }, 'Enlarge');
    const save = (label, action) => el('button', {
      class: 'quiet small', 'aria-label': `${label} of ${name}`,
      onclick: () => this.data?.x.length && action(this),
    }, label);
    this.node = el('figure', { class: 'card', 'data-metric': name },
      el('figcaption', {},
        el('span', { class: 'metric', title: name },
          el('span', { class: 'dim' }, prefix), last),
        this.place,
        el('span', { class: 'actions' },
          save('CSV', downloadCsv), save('PNG', downloadPicture), this.wide)),
      this.canvas, this.legend, this.scale);
    this.size = new ResizeObserver(() => this.fit());
    this.size.observe(this.canvas);
  }

  close() {
    this.size.disconnect();
    this.plot?.destroy();
    this.plot = null;
  }

  // axis: that of the data, which may be older than a choice on the page.
  show(data, reference, axis) {
    this.data = data;
    this.axis = axis;
    this.reference = reference;
    this.redraw();
  }

  rename() {
    if (this.data && this.plot) this.describe(this.plot.cursor.idx ?? null);
  }

  restyle() {
    this.plot?.destroy();
    this.plot = null;
    this.redraw();
  }

  enlarge() {
    const wide = this.node.classList.toggle('wide');
    this.wide.setAttribute('aria-pressed', wide);
    setText(this.wide, wide ? 'Shrink' : 'Enlarge');
  }

  fit() {
    const width = this.canvas.clientWidth;
    if (this.plot && width) this.plot.setSize({ width, height: this.height() });
  }

  height() {
    return this.node.classList.contains('wide') ? 2 * HEIGHT : HEIGHT;
  }

  redraw() {
    if (!this.data) return;
    const { x, curves } = this.data;
    this.node.classList.toggle('no-data', !curves.length);
    this.draw(...this.content());
    const index = this.plot.cursor.idx ?? null;
    const text = this.describe(index);
    // New data change what was read at the place of the keyboard's cursor.
    if (index !== null && document.activeElement === this.canvas) readOut(text);
  }

  // Columns of values for uPlot, and how the curves in them look.
  content() {
    const { x, curves } = this.data;
    const columns = [x];
    const layout = [];
    for (const band of this.bands()) {
      columns.push(...['low', 'high', 'mean'].map((key) => onto(x, band.x, band[key])));
      layout.push({ color: ink('reference'), band: true, dash: true, group: true });
    }
    for (const curve of curves) {
      const merged = curve.runs.length > 1;
      const hue = color(colorOf(curve.runs[0]));
      curve.line = smooth(curve.mean, store.settings.smooth);
      if (curve.low) columns.push(curve.low, curve.high);
      columns.push(...atEnd(curve.line, merged ? curve.complete : Infinity));
      layout.push({ color: hue, band: Boolean(curve.low), group: merged, rest: true });
    }
    return [columns, layout];
  }

  bands() {
    return this.data.x.length ? this.reference ?? [] : [];
  }

  draw(columns, layout) {
    const log = this.isLog(columns);
    const refused = store.settings.log && !log;
    const empty = this.axis === 'updates' ? 'These runs have not written train/updates'
      : 'No values yet';
    setText(this.scale, !this.data.x.length ? empty
      : refused ? 'Linear scale: some values are 0 or less' : '');
    const shape = JSON.stringify([layout, this.axis, log]);
    if (this.plot && this.shape === shape) {
      this.plot.setData(columns);
      return;
    }
    this.plot?.destroy();
    this.shape = shape;
    this.plot = new uPlot(this.options(layout, log), columns, this.canvas);
  }

  // A logarithm has no place for zero and below: such a chart stays linear.
  isLog(columns) {
    return store.settings.log && columns.slice(1).every(isPositive);
  }

  options(layout, log) {
    const grid = { stroke: ink('grid'), width: 1 };
    const axis = { stroke: ink('dim'), grid, ticks: { show: false }, font: AXIS_FONT };
    const byTime = this.axis === 'time';
    return {
      width: this.canvas.clientWidth || 300,
      height: this.height(),
      padding: [8, 12, 0, 0],
      legend: { show: false },
      scales: { x: { time: false }, y: { distr: log ? 3 : 1 } },
      cursor: {
        sync: { key: 'curves', setSeries: false },
        points: { size: 6 },
        drag: { x: true, y: false, setScale: false },
      },
      axes: [
        { ...axis, values: (_, ticks) => ticks.map(byTime ? axisTime : short),
          space: 60, size: 26 },
        { ...axis, values: (_, ticks) => ticks.map(tick), size: 48 },
      ],
      ...lines(layout),
      hooks: {
        setCursor: [(plot) => this.describe(plot.cursor.idx ?? null)],
        setSelect: [(plot) => this.select(plot)],
        ready: [(plot) => plot.over.addEventListener('dblclick', () => zoom(null))],
      },
    };
  }

  select(plot) {
    const { left, width } = plot.select;
    if (width < 4) return;
    const range = [left, left + width].map((place) => plot.posToVal(place, 'x'));
    plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    zoom(range);
  }

  // Values below the chart: at the cursor, or the last ones.
  describe(index) {
    const { x, curves } = this.data;
    const at = index ?? x.length - 1;
    const place = x[at];
    const text = this.axis === 'time' ? axisTime(place ?? 0) : whole(place);
    setText(this.place, x.length && index !== null ? `at ${text}` : '');
    const shown = curves.length > MOST_LABELS ? MOST_LABELS - 1 : MOST_LABELS;
    const rows = curves.slice(0, shown).map((curve) => ({
      label: labelOf(curve),
      hue: color(colorOf(curve.runs[0])),
      value: index === null ? lastOf(curve.line) : curve.line[index],
    }));
    const items = rows.map(legendItem);
    if (curves.length > shown) {
      items.push(el('li', { class: 'dim' }, `and ${curves.length - shown} more`));
    }
    if (curves.some(({ runs, complete }) => runs.length > 1 && complete < x.length)) {
      items.push(el('li', { class: 'dim' }, 'Dashed: some of the runs have ended'));
    }
    for (const band of this.bands()) {
      const hue = ink('reference');
      items.push(legendItem({ label: `Reference: ${band.label}`, hue }));
    }
    this.legend.replaceChildren(...items);
    const axis = AXES[this.axis];
    const summary = rows.map(({ label, value }) => `${label}: ${short(value)}`).join(', ');
    this.canvas.setAttribute('aria-label',
      `${this.name} over ${axis}, ${curves.length} curves. ${summary || 'No data'}. ` +
      'Arrow keys read values, plus and minus zoom.');
    return `${axis} ${text}: ${summary}`;
  }

  key(event) {
    if (!this.plot || !this.data.x.length) return;
    const last = this.data.x.length - 1;
    const at = this.plot.cursor.idx ?? last;
    const step = Math.max(1, Math.round(last / 40));
    const moves = {
      ArrowLeft: at - step, ArrowRight: at + step, Home: 0, End: last,
    };
    if (event.key in moves) {
      const index = Math.min(last, Math.max(0, moves[event.key]));
      const left = this.plot.valToPos(this.data.x[index], 'x');
      this.plot.setCursor({ left, top: this.plot.over.clientHeight / 2 });
      readOut(this.describe(index));
    } else if (event.key === '+' || event.key === '-') {
      zoom(around(this.plot.scales.x, this.data.x[at], event.key === '+' ? 0.5 : 2));
    } else if (event.key === '0' || event.key === 'Escape') zoom(null);
    else return;
    event.preventDefault();
  }
}

export const AXES = {
  step: 'step', updates: 'update', frames: 'frame', time: 'training time',
};
const AXIS_FONT = '11px system-ui, sans-serif';

// A logarithmic axis leaves out the numbers of some of its lines.
const tick = (value) => (value === null ? '' : short(value));

const isPositive = (values) => values.every((value) => value === null || value > 0);

const readOut = (text) => setText(document.getElementById('readout'), text);

const lastOf = (values) => values.findLast((value) => value !== null);

function around({ min, max }, place, factor) {
  const width = (max - min) * factor;
  const share = (place - min) / (max - min || 1);
  return [place - share * width, place + (1 - share) * width];
}

export function labelOf(curve) {
  const names = curve.runs.map((id) => store.runs.get(id)?.name ?? '');
  const many = names.length > 1 ? counted(curve.runs) : names[0];
  if (store.groupedBy.startsWith(OPTION)) {
    const name = store.groupedBy.slice(OPTION.length);
    const { value } = store.groups.get(curve.runs[0]) ?? {};
    const text = typeof value === 'string' ? `${name} = ${value}` : `${name} not set`;
    return `${text}, ${many}`;
  }
  if (names.length === 1) return names[0];
  const task = store.runs.get(curve.runs[0])?.task;
  return `${task || names[0]}, ${many}`;
}

// Repeated runs of a seed are runs: only distinct seeds are called so.
function counted(ids) {
  const seeds = new Set(ids.map((id) => store.runs.get(id)?.seed ?? id));
  if (seeds.size === ids.length) return plural(seeds.size, 'seed');
  return `${ids.length} runs of ${plural(seeds.size, 'seed')}`;
}

// The values up to the last one that is of all runs, and from there on.
function atEnd(values, complete) {
  return [
    values.map((value, index) => (index < complete ? value : null)),
    values.map((value, index) => (index >= complete - 1 ? value : null)),
  ];
}

function legendItem({ label, hue, value }) {
  const item = el('li', {}, el('i', {}), el('span', { class: 'label' }, label),
    value === undefined ? null : el('b', {}, short(value)));
  setVars(item, { color: hue });
  return item;
}

// Series and bands of uPlot; the lines come after their bands.
function lines(layout) {
  const series = [{}];
  const bands = [];
  for (const { color: stroke, band, dash, group, rest } of layout) {
    if (band) {
      const edge = { stroke: 'transparent', width: 0, points: { show: false } };
      series.push(edge, { ...edge });
      const fill = faint(stroke, dash ? 0.22 : group ? 0.2 : BAND);
      bands.push({ series: [series.length - 1, series.length - 2], fill });
    }
    const line = { stroke, width: layout.length > 12 ? 1 : 1.75, spanGaps: true };
    series.push({ ...line, dash: dash ? [5, 4] : undefined });
    if (rest) series.push({ ...line, dash: [3, 4] });
  }
  return { series, bands };
}

// Values of another x on this one, null outside of it.
function onto(x, otherX, values) {
  let next = 1;
  return x.map((place) => {
    if (!otherX.length || place < otherX[0] || place > otherX.at(-1)) return null;
    while (next < otherX.length - 1 && otherX[next] < place) next += 1;
    const width = otherX[next] - otherX[next - 1] || 1;
    const share = (place - otherX[next - 1]) / width;
    return values[next - 1] + share * (values[next] - values[next - 1]);
  });
}
