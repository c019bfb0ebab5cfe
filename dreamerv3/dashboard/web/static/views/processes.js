// The picture of the processes: state, speed and waits of each role.

import { badge, el, setVars } from '../dom.js';
import { bytes, duration, percent, plural, short } from '../format.js';
import { color } from '../palette.js';
import { LIVE, on, pickedRuns, store } from '../store.js';

const MOST_PICTURES = 8;
const SLOW_LINES = 3; // metrics later than so many intervals are a stall
const SHORTEST_STALL = 15; // seconds
const WORKS = new Set(['running', 'waiting']);
const BOUND = 0.3; // share of time spent waiting from which it is called a bottleneck

export class ProcessesView {
  constructor(panel) {
    this.life = new AbortController();
    this.panel = panel;
    on('runs picked theme', () => this.draw(), this.life.signal);
    // Ages grow without changes, which shows that changes are missing.
    this.timer = setInterval(() => this.draw(), 1000);
    this.draw();
  }

  close() {
    this.life.abort();
    clearInterval(this.timer);
  }

  draw() {
    const runs = pickedRuns().slice(0, MOST_PICTURES);
    const pictures = runs.map(picture);
    if (!runs.length) {
      pictures.push(el('p', { class: 'note' }, 'Choose runs to see their processes.'));
    } else if (store.picked.length > MOST_PICTURES) {
      pictures.push(el('p', { class: 'note' }, `The first ${MOST_PICTURES} are shown.`));
    }
    const text = pictures.map((node) => node.outerHTML).join('');
    if (text === this.text) return; // keeps a selection of text
    this.text = text;
    this.panel.replaceChildren(...pictures);
  }
}

function picture(run) {
  const { latest } = run;
  const age = typeof run.updated === 'number' ? Date.now() / 1000 - run.updated : null;
  const live = LIVE.has(run.state);
  const limit = Math.max(SHORTEST_STALL, SLOW_LINES * (run.log_every || 0));
  const stalled = live && age !== null && age > limit;
  const moving = live && !stalled;
  const title = el('h2', { class: 'run-title' }, el('i', {}), run.name,
    badge(run.state), el('span', { class: 'dim' }, run.task));
  setVars(title, { color: color(store.colors.get(run.id)) });
  const { agent = run.state, replay = run.state } = statesOf(run.roles);
  const flows = (...ends) => moving && ends.every((state) => WORKS.has(state));
  const steps = latest['actor/steps_per_second'] ?? latest['fps/env'];
  const stage = el('div', { class: 'stage' },
    environments(run),
    arrow(rate(steps, 'steps/s'), flows(agent) && someWork(run)),
    agentBox(run),
    arrow(ratioText(run), flows(agent, replay)),
    replayBox(run));
  const logger = loggerBox(run, age);
  return el('section', { class: 'picture', 'data-run': run.id },
    title, verdict(run, stalled, age), stage, logger,
    run.error ? el('pre', { class: 'error' }, run.error) : null);
}

function verdict(run, stalled, age) {
  const busy = activities(run);
  const late = stalled ? `No new metrics for ${duration(age)}` : '';
  if (stalled && !busy) {
    const cause = Object.keys(run.roles).length
      ? 'something is stuck' : 'the run compiles, saves or is stuck';
    return el('p', { class: 'verdict bad' }, `${late}: ${cause}.`);
  }
  const ended = ENDS[run.state]?.(run);
  const text = ended ?? (busy && (stalled || !run.bottleneck)
    ? `${capital(busy)}.${late && ` ${late}.`}` : bottleneck(run));
  return el('p', { class: 'verdict' }, text);
}

const ENDS = {
  done: () => 'The run has ended.',
  finished: () => 'The run has finished: it reached its steps.',
  stopped: ({ reason }) =>
    `The run was stopped by ${reason || 'a signal'}. The same command goes on.`,
  killed: () =>
    'The run was ended at once by a second signal, without a last save. ' +
    'The same command goes on from the one before.',
  failed: () => 'The run has failed.',
  dead: () => 'Its launcher has died. The same command goes on with it.',
  silent: () => 'Its launcher is suspended or stuck.',
};

// What takes roles long at the moment, such as "agent compiling train for 34 s".
const activities = ({ roles }) => Object.entries(roles)
  .filter(([, { activity }]) => activity)
  .map(([name, { activity }]) => `${name} ${activity}`).join(', ');

const bottleneck = (run) => (run.bottleneck ? `${capital(run.bottleneck)}.`
  : 'No figures yet: a run begins by compiling its programs.');

const capital = (text) => text[0].toUpperCase() + text.slice(1);

const rolesLike = (run, pattern) =>
  Object.entries(run.roles).filter(([name]) => pattern.test(name));

function environments(run) {
  const workers = rolesLike(run, /env/);
  const dots = workers.map(([name, role]) => el('li', {},
    el('span', { class: `dot is-${role.state}`, title: tip(name, role) }),
    el('span', { class: 'hidden' }, tip(name, role))));
  return box('Environments', environmentState(run), [
    ['environments', short(run.envs)],
    ['steps per second', short(run.latest['fps/env'])],
  ], [
    bar('wait for training', run.latest['replay/insert_wait'], true),
    workers.length ? el('ul', { class: 'dots', 'aria-label': 'Workers' }, ...dots) : null,
  ], memory(run, 'envs'));
}

function environmentState(run) {
  const workers = rolesLike(run, /env/);
  return workers.length ? worst(workers.map(([, role]) => role.state)) : run.state;
}

function someWork(run) {
  const workers = rolesLike(run, /env/);
  return !workers.length || workers.some(([, role]) => WORKS.has(role.state));
}

const statesOf = (roles) =>
  Object.fromEntries(Object.entries(roles).map(([name, { state }]) => [name, state]));

function agentBox(run) {
  const { latest } = run;
  const role = run.roles.agent;
  const state = role?.state ?? run.state;
  const actor = box('Actor', null, [
    ['policy calls per second', short(latest['actor/calls_per_second'])],
    ['milliseconds per call', short(latest['actor/policy_ms'])],
  ], [bar('batch filled', latest['actor/batch_fill'])]);
  const learner = box('Learner', null, [
    ['updates per second', short(latest['fps/train'])],
    ['updates', short(latest['train/updates'])],
  ], [bar('waits for batches', latest['learner/wait'], true)]);
  return el('div', { class: `box agent edge-${state}` },
    heading('Agent', state, role), el('div', { class: 'pair' }, actor, learner),
    memory(run, 'agent'));
}

function replayBox(run) {
  const { latest } = run;
  const role = run.roles.replay;
  return box('Replay', role?.state ?? run.state, [
    ['steps', short(latest['replay/steps'])],
    ['size', bytes(1e9 * latest['replay/gigabytes'])],
    ['fresh in queue', short(latest['replay/online_queue'])],
  ], [
    bar('filled for training', latest['replay/fill']),
    bar('training waits', latest['replay/sample_wait'], true),
  ], memory(run, 'replay'), role);
}

function loggerBox(run, age) {
  const role = run.roles.logger;
  const last = age === null ? 'no line yet' : `last line ${duration(age)} ago`;
  return el('div', { class: `box logger edge-${role?.state ?? run.state}` },
    heading('Logger', role?.state ?? run.state, role),
    el('p', { class: 'dim' }, last), memory(run, 'logger'));
}

function box(title, state, facts, bars, extra = null, role = null) {
  return el('div', { class: state ? `box edge-${state}` : 'box inner' },
    heading(title, state, role),
    el('dl', {}, ...facts.flatMap(([name, value]) =>
      [el('dt', {}, name), el('dd', {}, value)])),
    ...bars, extra);
}

function heading(title, state, role) {
  const notes = [];
  if (role?.activity) notes.push(role.activity);
  if (role?.restarts) notes.push(plural(role.restarts, 'restart'));
  return el('h3', {}, title, state ? badge(state) : null,
    notes.length ? el('span', { class: 'dim' }, notes.join(', ')) : null);
}

function bar(label, share, isWait = false) {
  if (typeof share !== 'number') return null;
  const value = Math.min(1, Math.max(0, share));
  const much = isWait && value > BOUND ? ' much' : '';
  const node = el('div', { class: `bar${much}`, role: 'meter', 'aria-label': label,
    'aria-valuemin': 0, 'aria-valuemax': 100, 'aria-valuenow': Math.round(100 * value) },
  el('span', {}, label), el('b', {}, percent(value)), el('i', {}));
  setVars(node, { share: value });
  return node;
}

function arrow(text, flows) {
  return el('div', { class: flows ? 'arrow moving' : 'arrow', 'aria-hidden': 'true' },
    el('span', {}, text), el('i', {}));
}

const rate = (value, unit) => (typeof value === 'number' ? `${short(value)} ${unit}` : '');

function ratioText({ latest, wanted_ratio: wanted }) {
  const reached = latest['replay/train_ratio'];
  return typeof reached === 'number' ? `ratio ${short(reached)} of ${short(wanted)}` : '';
}

function memory(run, role) {
  const gigabytes = run.latest[`usage/${role}/memory_gb`];
  return typeof gigabytes === 'number'
    ? el('p', { class: 'dim' }, `${bytes(1e9 * gigabytes)} memory`) : null;
}

const RANK = ['dead', 'failed', 'restarting', 'silent', 'starting', 'unknown',
  'running', 'waiting', 'killed', 'stopped', 'finished', 'done'];

const worst = (states) => RANK.find((state) => states.includes(state)) ?? 'unknown';

const tip = (name, { state, activity, restarts }) =>
  `${name}: ${state}${activity ? `, ${activity}` : ''}` +
  (restarts ? `, ${plural(restarts, 'restart')}` : '');
