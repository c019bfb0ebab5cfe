// Details of the chosen runs, fetched when their files have changed.

import * as api from './api.js';
import { on, pickedRuns, store } from './store.js';

// Calls `draw` with [[summary, details], ...] now and whenever one of them changes.
// `files`: names of the files of a run that matter.
export function followDetails(files, draw, signal) {
  const known = new Map(); // id -> {stamp, details}
  let newest = 0;
  let drawn = null;

  async function update() {
    const mine = ++newest;
    const runs = pickedRuns();
    for (const run of runs) {
      const stamp = JSON.stringify(files.map((name) => run.files[name]));
      if (known.get(run.id)?.stamp === stamp) continue;
      const details = await answer(api.details(run.id));
      if (signal.aborted) return;
      if (details) known.set(run.id, { stamp, details });
    }
    const found = runs.filter((run) => known.has(run.id));
    const now = JSON.stringify(found.map(({ id }) => [id, known.get(id).stamp]));
    if (mine !== newest || now === drawn) return; // a video that plays is left alone
    drawn = now;
    draw(found.map((run) => [run, known.get(run.id).details]));
  }

  on('picked', update, signal);
  on('runs', (ids) => ids.some((id) => store.picked.includes(id)) && update(), signal);
  update();
}

// Null if the run has vanished or the server is not reached.
async function answer(response) {
  try {
    return await response;
  } catch (error) {
    console.info('no response:', error.message);
    return null;
  }
}
