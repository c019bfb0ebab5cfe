// Files of a chart: its values as CSV, and a picture with names and legend as PNG.

import { AXES, labelOf } from './chart.js';
import { axisTime, short } from './format.js';
import { color, ink } from './palette.js';
import { colorOf, store } from './store.js';
import uPlot from './vendor/uPlot.esm.js';

const WIDTH = 1000; // pixels of a picture, at a density of 1
const HEIGHT = 460;
const MARGIN = 16;
const LINE = 20;
const FONT = 'system-ui, sans-serif';

// One row per point of a curve; the values are those of the chart.
export function downloadCsv(chart) {
  const { x, curves } = chart.data;
  const rows = [['curve', chart.axis, 'mean', 'smoothed', 'low', 'high']];
  for (const curve of curves) {
    const label = labelOf(curve);
    x.forEach((place, index) => {
      if (curve.mean[index] === null) return;
      rows.push([label, place, curve.mean[index], curve.line[index],
        curve.low?.[index], curve.high?.[index]]);
    });
  }
  for (const band of chart.bands()) {
    band.x.forEach((place, index) => rows.push([`Reference: ${band.label}`, place,
      band.mean[index], '', band.low[index], band.high[index]]));
  }
  saveCsv(rows, fileName(chart, 'csv'));
}

export function saveCsv(rows, name) {
  const text = rows.map((row) => `${row.map(cell).join(',')}\r\n`).join('');
  save(new Blob([text], { type: 'text/csv' }), name);
}

// Names come from folders: a spreadsheet would run those that begin like a formula.
function cell(value) {
  if (typeof value === 'number') return String(value);
  const text = String(value ?? '').replace(/^(?=[=+\-@\t\r])/, "'");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export async function downloadPicture(chart) {
  const plot = await drawn(chart);
  const density = plot.canvas.width / WIDTH;
  const entries = legend(chart);
  const canvas = document.createElement('canvas');
  canvas.width = plot.canvas.width + 2 * MARGIN * density;
  const height = HEIGHT + 4 * MARGIN + LINE * (entries.length + 1);
  canvas.height = height * density;
  const context = canvas.getContext('2d');
  const style = getComputedStyle(chart.node);
  context.fillStyle = style.backgroundColor;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(plot.canvas, MARGIN * density, (2 * MARGIN + LINE) * density);
  context.scale(density, density);
  context.textBaseline = 'middle';
  context.fillStyle = style.color;
  context.font = `600 15px ${FONT}`;
  context.fillText(chart.name, MARGIN, MARGIN + LINE / 2, WIDTH);
  context.font = `12px ${FONT}`;
  context.textAlign = 'right';
  context.fillStyle = ink('dim');
  context.fillText(`over ${AXES[chart.axis]}s`.replace('times', 'time'),
    WIDTH + MARGIN, MARGIN + LINE / 2);
  context.textAlign = 'left';
  entries.forEach(({ label, hue }, index) => {
    const y = 3 * MARGIN + LINE + HEIGHT + LINE * (index + 0.5);
    context.fillStyle = hue;
    context.fillRect(MARGIN, y - 2, 14, 4);
    context.fillStyle = style.color;
    context.fillText(label, MARGIN + 22, y, WIDTH - 22);
  });
  plot.destroy();
  canvas.toBlob((blob) => save(blob, fileName(chart, 'png')));
}

// A larger copy of the chart, out of sight.
function drawn(chart) {
  const [columns, layout] = chart.content();
  const place = document.createElement('div');
  return new Promise((done) => {
    const options = chart.options(layout, chart.isLog(columns));
    const plot = new uPlot({
      ...options, width: WIDTH, height: HEIGHT, cursor: { show: false },
      hooks: { draw: [() => done({
        canvas: plot.ctx.canvas, destroy: () => plot.destroy(),
      })] },
    }, columns, place);
  });
}

function legend(chart) {
  const curves = chart.data.curves.map((curve) => {
    const last = curve.line.findLast((value) => value !== null);
    return { label: `${labelOf(curve)}: ${short(last)}`,
      hue: color(colorOf(curve.runs[0])) };
  });
  const bands = chart.bands().map(({ label }) =>
    ({ label: `Reference: ${label}`, hue: ink('reference') }));
  const place = chart.data.x.at(-1);
  const text = chart.axis === 'time' ? axisTime(place) : short(place);
  const note = [`Values at the end, ${AXES[chart.axis]} ${text}`];
  if (store.settings.smooth) note.push(`smoothing ${store.settings.smooth}`);
  return [...curves, ...bands, { label: note.join(', '), hue: 'transparent' }];
}

const fileName = (chart, ending) =>
  `${chart.name}-${chart.axis}.${ending}`.replaceAll(/[^\w.=-]+/g, '_');

function save(blob, name) {
  const address = URL.createObjectURL(blob);
  const link = document.createElement('a');
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), KEPT_MS);
}

const KEPT_MS = 60_000; // that the browser may take to begin with the download
