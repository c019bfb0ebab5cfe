// Options of all runs that are columns of the table, and the names of all others.

import * as api from './api.js';
import { emit, on, store } from './store.js';

const PAUSE_MS = 700; // so that the first curves are not held up

export class OptionValues {
  constructor() {
    this.known = null; // what the newest answer is about
    this.timer = null;
    on('runs settings', () => this.later());
    this.later();
  }

  later() {
    if (this.timer !== null || this.wanted() === this.known) return;
    this.timer = setTimeout(async () => {
      const answered = await this.load();
      this.timer = null;
      if (answered) this.later();
    }, this.known === null ? PAUSE_MS : 0);
  }

  wanted() {
    const stamps = [...store.runs].map(([id, run]) => [id, run.files['config.yaml']]);
    return JSON.stringify([stamps, store.settings.columns]);
  }

  // Whether the server has answered. If not, the next message about runs asks again:
  // the stream begins with all of them when the server is back.
  async load() {
    const wanted = this.wanted();
    try {
      store.options = await api.options(store.settings.columns);
      this.known = wanted;
      emit('options');
      return true;
    } catch (error) {
      // The header says that the server is not reached.
      console.info('no response:', error.message);
      this.known = null;
      return false;
    }
  }
}
