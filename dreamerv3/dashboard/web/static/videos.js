// Videos of the chosen runs: a strip of frames that plays when asked to.

import { videoAddress } from './api.js';
import { followDetails } from './details.js';
import { el, setText, setVars } from './dom.js';
import { short, whole } from './format.js';
import { color } from './palette.js';
import { store } from './store.js';

export class VideosView {
  constructor(panel) {
    this.life = new AbortController();
    this.panel = panel;
    this.cards = new Map(); // run and label -> card, so that a playing one goes on
    followDetails(['videos'], (all) => this.draw(all), this.life.signal);
  }

  close() {
    this.life.abort();
  }

  draw(all) {
    const without = all.filter(([, { videos }]) => !videos.length);
    const sections = all.filter(([, { videos }]) => videos.length)
      .map(([run, { videos }]) => {
      const cards = [...byLabel(videos)].map(([label, versions]) => {
        const key = `${run.id} ${label}`;
        if (!this.cards.has(key)) this.cards.set(key, makeCard(run.id, label));
        const card = this.cards.get(key);
        card.show(versions);
        return card.node;
      });
      const title = el('h2', { class: 'run-title' }, el('i', {}), run.name);
      setVars(title, { color: color(store.colors.get(run.id)) });
      return el('section', {}, title, el('div', { class: 'grid' }, ...cards));
    });
    if (!all.length) {
      sections.push(el('p', { class: 'note' }, 'Choose runs to see their videos.'));
    } else if (without.length) {
      const names = without.map(([run]) => run.name).join(', ');
      sections.push(el('p', { class: 'note' }, `No videos yet: ${names}`));
    }
    this.panel.replaceChildren(...sections);
  }
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

function makeCard(run, label) {
  let versions = [];
  let newest = true; // follows the newest until the user goes back
  let playing = false;
  const screen = el('div', { class: 'screen' });
  const title = el('span', { class: 'metric', title: label }, label);
  const place = el('output', { class: 'dim' });
  const slider = el('input', {
    type: 'range', min: 0, step: 1, 'aria-label': `Step of ${label}`,
    oninput: () => {
      newest = Number(slider.value) === versions.length - 1;
      draw();
    },
  });
  const play = el('button', {
    class: 'small', onclick: () => {
      playing = !playing;
      draw();
    },
  });
  const node = el('figure', { class: 'card video' },
    el('figcaption', {}, title, place), screen,
    el('div', { class: 'controls' }, play, slider));

  function show(found) {
    const before = versions[slider.value]?.step;
    versions = found;
    slider.max = versions.length - 1;
    const same = versions.findIndex(({ step }) => step === before);
    if (newest || same < 0) slider.value = versions.length - 1;
    else slider.value = same;
    slider.hidden = versions.length < 2;
    draw();
  }

  function draw() {
    const { step, film, strip } = versions[slider.value];
    setText(place, `step ${short(step)}`);
    slider.setAttribute('aria-valuetext', `step ${whole(step)}`);
    play.hidden = !film;
    setText(play, playing ? 'Stop' : 'Play');
    play.setAttribute('aria-label', `${playing ? 'Stop' : 'Play'} ${label}`);
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
  return { node, show };
}
