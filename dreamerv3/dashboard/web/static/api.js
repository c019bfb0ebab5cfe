// Requests to the server, and the streams that it sends.

async function request(path, options) {
  const response = await fetch(path, options);
  if (!response.ok) throw new Error(messageOf(response.status, await response.text()));
  return response.json();
}

// A refusal is {message}, or plain text.
function messageOf(status, text) {
  try {
    return JSON.parse(text).message ?? text;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return `${status}: ${text}`;
  }
}

const listed = (runs) => new URLSearchParams({ runs: runs.join(',') });

export const names = (runs) => request(`/api/names?${listed(runs)}`);

export const details = (run) => request(`/api/runs/${run}`);

export const finals = () => request('/api/finals');

export const options = (names) =>
  request(`/api/options?${new URLSearchParams(names.map((name) => ['name', name]))}`);

export const videoAddress = (run, file) =>
  `/api/runs/${run}/videos/${encodeURIComponent(file)}`;

export const logAddress = (run, file) =>
  `/api/runs/${run}/logs/${encodeURIComponent(file)}`;

// before: the fields of `changes` as they are shown.
export const changeLabel = (run, changes, before) => request(`/api/runs/${run}/label`, {
  method: 'PUT',
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify({ changes, before }),
});

export function series(runs, metrics, { x, group, reference }, range) {
  const query = listed(runs);
  for (const metric of metrics) query.append('metric', metric);
  query.set('x', x);
  if (group) query.set('group', group);
  if (reference) query.set('reference', '1');
  if (range) {
    query.set('from', range[0]);
    query.set('to', range[1]);
  }
  return request(`/api/series?${query}`);
}

export function distributions(runs, { kind, part, evals, group }) {
  const query = listed(runs);
  query.set('kind', kind);
  query.set('part', part);
  if (group) query.set('group', group);
  if (evals) query.set('eval', '1');
  return request(`/api/distributions?${query}`);
}

// Parts of a log, {text, first, skipped}, until the stream is closed.
export const followLog = (run, file, onPart, onConnection) =>
  stream(`${logAddress(run, file)}/stream`, onPart, onConnection);

// Changes of runs for as long as the page is open; each connection begins with all.
export const changes = (onChange, onConnection) =>
  stream('/api/changes', onChange, onConnection);

const RETRY_MS = 2000;

// Connects again whenever the connection is lost, until it is closed.
function stream(address, onMessage, onConnection) {
  let source = null;
  let timer = null;
  const open = () => {
    source = new EventSource(address);
    source.onopen = () => onConnection(true);
    source.onerror = () => {
      onConnection(false);
      // The browser gives up after an answer that is no stream, as a proxy's error.
      if (source.readyState === EventSource.CLOSED) timer = setTimeout(open, RETRY_MS);
    };
    source.onmessage = (message) => onMessage(JSON.parse(message.data));
  };
  open();
  return {
    close() {
      clearTimeout(timer);
      source.close();
    },
  };
}
