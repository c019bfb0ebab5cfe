"""Real dashboards in processes of their own, and plain requests to them."""

import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

ENDS_WITHIN = 30  # seconds


class Dashboard:
    """A running `dreamer watch`."""

    def __init__(
        self, folder: Path, *flags: str, port: int = 0, under: Sequence[str] = ()
    ):
        command = [*under, sys.executable, '-m', 'dreamerv3', 'watch', str(folder)]
        command += ['--port', str(port), *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        first = self.process.stdout.readline()
        assert first.startswith('Dashboard: '), first
        self.url = first.split()[-1]
        self.port = urlsplit(self.url).port or 0

    def get(
        self, path: str, query: Any = (), **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body; the path goes out as it is."""
        target = f'{path}?{urlencode(query, doseq=True)}' if query else path
        connection = http.client.HTTPConnection('127.0.0.1', self.port, timeout=30)
        connection.putrequest('GET', target, skip_host='host' in headers)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response.status, {k.lower(): v for k, v in response.getheaders()}, body

    def change(self, run: str, changes: Any, before: Any) -> tuple[int, Any]:
        """Changes the label of a run as the page does it; status and answer."""
        return self.put(run, json.dumps({'changes': changes, 'before': before}))

    def put(self, run: str, body: str | bytes, **headers: str) -> tuple[int, Any]:
        own = {
            'origin': f'http://127.0.0.1:{self.port}',
            'content-type': 'application/json',
        }
        connection = http.client.HTTPConnection('127.0.0.1', self.port, timeout=30)
        sent = {k.replace('_', '-'): v for k, v in (own | headers).items() if v}
        connection.request('PUT', f'/api/runs/{run}/label', body, sent)
        response = connection.getresponse()
        status, text = response.status, response.read()
        connection.close()
        is_json = response.headers['content-type'] == 'application/json'
        return status, json.loads(text) if is_json else text.decode()

    def json(self, path: str, query: Any = ()) -> Any:
        status, _, body = self.get(path, query)
        assert status == 200, body
        return json.loads(body)

    @contextmanager
    def changes(self) -> Iterator[Iterator[dict[str, Any]]]:
        """The messages of the stream of changes, as they come."""
        connection = http.client.HTTPConnection('127.0.0.1', self.port, timeout=60)
        connection.request('GET', '/api/changes')
        response = connection.getresponse()

        def messages() -> Iterator[dict[str, Any]]:
            for line in response:
                if line.startswith(b'data: '):
                    yield json.loads(line[6:])

        try:
            yield messages()
        finally:
            connection.close()

    def wait_until(
        self, condition: Callable[[dict[str, Any]], bool]
    ) -> dict[str, dict[str, Any]]:
        """Follows the changes until all that is known of runs, by name, is right."""
        known: dict[str, Any] = {}
        with self.changes() as messages:
            for message in messages:
                known.update({run['name']: run for run in message['runs'].values()})
                if condition(known):
                    return known
        raise AssertionError(f'The stream has ended: {known}')

    def close(self) -> int:
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(ENDS_WITHIN)
        assert self.process.stdout
        self.process.stdout.close()
        return code


@contextmanager
def dashboard(
    folder: Path, *flags: str, under: Sequence[str] = ()
) -> Iterator[Dashboard]:
    """A dashboard that is ended with the block, in whatever way that ends.

    under: a command that starts the rest of its command line.
    """
    server = Dashboard(folder, *flags, under=under)
    try:
        yield server
        assert server.close() == 0
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.communicate()
