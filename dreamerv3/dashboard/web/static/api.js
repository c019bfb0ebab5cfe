// Requests to the server, and the stream of changes that it sends.

async function request(path) {
  const response = await fetch(path);
  if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`);
  return response.json();
}

const listed = (runs) => new URLSearchParams({ runs: runs.join(',') });

export const names = (runs) => request(`/api/names?${listed(runs)}`);

export const details = (run) => request(`/api/runs/${run}`);

export const videoAddress = (run, file) =>
  `/api/runs/${run}/videos/${encodeURIComponent(file)}`;

export function series(runs, metrics, { x, merge, reference }, range) {
  const query = listed(runs);
  for (const metric of metrics) query.append('metric', metric);
  query.set('x', x);
  if (merge) query.set('merge', '1');
  if (reference) query.set('reference', '1');
  if (range) {
    query.set('from', range[0]);
    query.set('to', range[1]);
  }
  return request(`/api/series?${query}`);
}

// Reconnects for as long as the page is open; each connection begins with all runs.
export function changes(onChange, onConnection) {
  const source = new EventSource('/api/changes');
  source.onopen = () => onConnection(true);
  source.onerror = () => {
    onConnection(false);
    // The browser gives up after an answer that is no stream, such as a proxy's error.
    if (source.readyState === EventSource.CLOSED) {
      setTimeout(() => changes(onChange, onConnection), RETRY_MS);
    }
  };
  source.onmessage = (message) => onChange(JSON.parse(message.data));
}

const RETRY_MS = 2000;
