// Videos of the chosen runs side by side: strips of frames that play when asked to.

import { videoAddress } from '../api.js';
import { followDetails } from '../details.js';
import { el, setText, setVars } from '../dom.js';
import { short, whole } from '../format.js';
import { color } from '../palette.js';
import { on, store } from '../store.js';

export class VideosView {
  constructor(panel) {
    this.life = new AbortController();
    this.panel = panel;
    this.shelves = new Map(); // label -> Shelf, so that one that plays goes on
    this.all = [];
    const { signal } = this.life;
    followDetails(['videos'], (all) => this.draw(all), signal);
    on('theme names', () => this.draw(this.all), signal);
  }

  close() {
    this.life.abort();
  }

  draw(all) {
    this.all = all.map(([{ id }, details]) => [store.runs.get(id), details])
      .filter(([run]) => run);
    const videos = new Map(); // label -> id -> versions
    for (const [{ id }, details] of this.all) {
      for (const [label, versions] of byLabel(details.videos)) {
        if (!videos.has(label)) videos.set(label, new Map());
        videos.get(label).set(id, versions);
      }
    }
    const filled = this.all.filter(([, details]) => details.videos.length);
    const nodes = [...videos].map(([label, versions]) => {
      if (!this.shelves.has(label)) this.shelves.set(label, new Shelf(label));
      const shelf = this.shelves.get(label);
      shelf.show(filled.map(([run]) => run), versions);
      return shelf.node;
    });
    const text = this.missing(filled);
    if (text) nodes.push(el('p', { class: 'note' }, text));
    if (nodes.some((node, index) => node !== this.panel.children[index]
        && !node.matches('.note')) || nodes.length !== this.panel.children.length) {
      this.panel.replaceChildren(...nodes); // a video that plays is left alone
    } else if (text) setText(this.panel.lastChild, text);
  }

  missing(filled) {
    if (!this.all.length) return 'Choose runs to see their videos.';
    const without = this.all.filter((one) => !filled.includes(one));
    if (!without.length) return '';
    const names = without.map(([run]) => run.name).join(', ');
    return `No videos yet: ${names}. Reports and episodes of image observations make ` +
      'them, while the output video is among --logger.outputs.';
  }
}

// One kind of video of all runs, with common controls.
class Shelf {
  constructor(label) {
    this.label = label;
    this.playing = false;
    this.newest = true; // follows the newest until the user goes back
    this.steps = []; // of all runs
    this.screens = new Map(); // id -> screen
    this.place = el('output', { class: 'dim' });
    this.slider = el('input', {
      type: 'range', min: 0, step: 1, 'aria-label': `Step of ${label}`,
      oninput: () => {
        this.newest = Number(this.slider.value) === this.steps.length - 1;
        this.draw();
      },
    });
    this.play = el('button', {
      class: 'small', onclick: () => {
        this.playing = !this.playing;
        this.draw();
      },
    });
    this.grid = el('div', { class: 'grid' });
    this.node = el('section', { class: 'shelf', 'data-label': label },
      el('div', { class: 'controls' },
        el('h2', { class: 'metric', title: label }, label),
        this.play, this.slider, this.place),
      this.grid);
  }

  // versions: id of a run -> [{step, film, strip}], oldest first.
  show(runs, versions) {
    const before = this.steps[this.slider.value];
    this.versions = versions;
    const all = [...versions.values()].flat().map(({ step }) => step);
    this.steps = [...new Set(all)].sort((a, b) => a - b);
    this.slider.max = this.steps.length - 1;
    const same = this.steps.indexOf(before);
    this.slider.value = this.newest || same < 0 ? this.steps.length - 1 : same;
    this.slider.hidden = this.steps.length < 2;
    const nodes = runs.map((run) => {
      if (!this.screens.has(run.id)) this.screens.set(run.id, makeScreen(run.id));
      this.screens.get(run.id).name(run);
      return this.screens.get(run.id).node;
    });
    if (nodes.length !== this.grid.children.length ||
        nodes.some((node, index) => node !== this.grid.children[index])) {
      this.grid.replaceChildren(...nodes);
    }
    this.draw();
  }

  draw() {
    const step = this.steps[this.slider.value];
    const shown = [...this.versions.values()].map((list) => versionAt(list, step));
    setText(this.place, this.versions.size > 1 ? `up to step ${short(step)}`
      : `step ${short(step)}`);
    this.slider.setAttribute('aria-valuetext', `step ${whole(step)}`);
    this.play.hidden = !shown.some((version) => version?.film);
    setText(this.play, this.playing ? 'Stop' : 'Play');
    this.play.setAttribute('aria-label',
      `${this.playing ? 'Stop' : 'Play'} ${this.label}`);
    for (const [id, screen] of this.screens) {
      const list = this.versions.get(id) ?? [];
      screen.show(this.label, versionAt(list, step), list[0], this.playing);
    }
  }
}

// The newest version up to a step, as runs make theirs at different ones.
const versionAt = (list, step) => list.findLast((version) => version.step <= step);

function makeScreen(run) {
  const title = el('span', { class: 'run-title' });
  const place = el('output', { class: 'dim' });
  const screen = el('div', { class: 'screen' });
  const node = el('figure', { class: 'card video', 'data-run': run },
    el('figcaption', {}, el('i', {}), title, place), screen);

  function name(summary) {
    setText(title, summary.name);
    title.title = summary.name;
    setVars(node, { color: color(store.colors.get(run)) });
  }

  // version: null before the first one of this run.
  function show(label, version, first, playing) {
    setText(place, version ? `step ${short(version.step)}` : '');
    if (!version) {
      screen.replaceChildren(el('p', { class: 'note' }, first
        ? `From step ${whole(first.step)} on` : 'This run has none of these'));
      return;
    }
    const { step, film, strip } = version;
    const source = playing || !strip ? film ?? { file: strip } : { file: strip };
    const address = videoAddress(run, source.file);
    if (screen.firstChild?.getAttribute('src') === address) return;
    const alt = `${label} at step ${whole(step)}`;
    screen.replaceChildren(source.kind?.startsWith('video/')
      ? el('video', {
        src: address, controls: true, loop: true, muted: true, autoplay: playing,
        playsinline: true, 'aria-label': alt,
      })
      : el('img', { src: address, alt }));
    screen.classList.toggle('strip', source.file === strip);
  }
  return { node, name, show };
}

// label -> [{step, film, strip}], oldest first
function byLabel(files) {
  const labels = new Map();
  for (const { file, label, kind, step } of [...files].reverse()) {
    if (!labels.has(label)) labels.set(label, new Map());
    const steps = labels.get(label);
    if (!steps.has(step)) steps.set(step, { step });
    const version = steps.get(step);
    if (kind === 'image/png') version.strip = file;
    // A video can be paused and is smaller than the same as GIF.
    else if (!version.film || kind.startsWith('video/')) version.film = { file, kind };
  }
  return new Map([...labels].map(([label, steps]) => [label, [...steps.values()]]));
}
