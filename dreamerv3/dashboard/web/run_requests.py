"""Requests about one run: its options, events, videos and logs, and its label."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse

from embodied.core.errors import ConfigError

from ..runs.folders import PICTURES, Run, pictures
from ..runs.labels import LABEL_FILE, LabelChangedError, write_label
from ..runs.log_files import FOLDER, LogFollower, logs, read_log
from ..runs.run_files import parse_object
from ..runs.state import read_events
from ..series.follower import LOOK_EVERY, Follower
from .answers import as_json, dump, refusal

__all__ = ['HEARTBEAT', 'STREAM', 'RunRequests']

HEARTBEAT = 15.0  # seconds without changes after which a stream sends a comment
STREAM = {'cache-control': 'no-store', 'x-accel-buffering': 'no'}
LARGEST_BODY = 1 << 18  # bytes of a change
BODY_WITHIN = 5.0  # seconds in which a change has to arrive
READ_ONLY = 'This dashboard does not change anything: it was started with --read-only.'


class RunRequests:
    """Handlers. Plain methods run in threads, so that they may block."""

    def __init__(self, follower: Follower, read_only: bool):
        self._follower = follower
        self._read_only = read_only
        self._writing = asyncio.Lock()

    def details(self, request: Request) -> Response:
        """Options, events, videos and logs of a run."""
        run = self._run(request)
        return as_json(
            {
                'id': run.id,
                'options': self._follower.options(run),
                'events': read_events(run.path),
                'videos': pictures(run),
                'logs': logs(run),
            }
        )

    def video(self, request: Request) -> Response:
        """A picture or video, if it is one of those that the run lists."""
        run = self._run(request)
        file = request.path_params['file']
        if file not in {item['file'] for item in pictures(run)}:
            raise HTTPException(404, 'There is no such video.')
        path = run.path / 'videos' / file
        return FileResponse(path, media_type=PICTURES[path.suffix])

    def log(self, request: Request) -> Response:
        """A log as a file."""
        run, file = self._log(request)
        name = f'{run.path.name}-{file}'.encode('ascii', 'replace').decode()
        safe = ''.join(
            char if char.isalnum() or char in '-_.' else '_' for char in name
        )
        headers = {
            'cache-control': 'no-store',
            'content-disposition': f'attachment; filename="{safe}"',
        }
        return Response(read_log(run, file), 200, headers, media_type='text/plain')

    def log_stream(self, request: Request) -> Response:
        """Server-sent events: the end of a log at first, then what is added to it."""
        run, file = self._log(request)
        lines = LogFollower(run.path / FOLDER / file)
        return StreamingResponse(
            self._follow(lines), media_type='text/event-stream', headers=STREAM
        )

    async def _follow(self, log: LogFollower) -> AsyncIterator[str]:
        yield 'retry: 1000\n\n'
        silent = 0.0
        while not self._follower.closed:
            part = await run_in_threadpool(log.more)
            if part:
                silent = 0.0
                yield f'data: {dump(part._asdict())}\n\n'
                continue
            # As the follower of runs does: not every file system announces changes.
            await asyncio.sleep(LOOK_EVERY)
            silent += LOOK_EVERY
            if silent >= HEARTBEAT:
                silent = 0.0
                yield ': heartbeat\n\n'

    async def label(self, request: Request) -> Response:
        """Changes name, notes, or whether it is hidden: {"changes": {}, "before": {}}.

        Both have the same fields; `before` is what the user has seen.
        """
        run = self._run(request)
        if self._read_only:
            return refusal(403, READ_ONLY)
        body = parse_object(await _body(request)) or {}
        changes, before = body.get('changes'), body.get('before')
        if not isinstance(changes, dict) or not isinstance(before, dict):
            return refusal(400, 'A change has the fields `changes` and `before`.')
        async with self._writing:  # reads and writes; the fields of one label at a time
            return await run_in_threadpool(_write, run, changes, before)

    def _run(self, request: Request) -> Run:
        try:
            return self._follower.runs()[request.path_params['id']]
        except KeyError:
            raise HTTPException(404, 'There is no such run.') from None

    def _log(self, request: Request) -> tuple[Run, str]:
        run, file = self._run(request), request.path_params['file']
        if file not in {item['file'] for item in logs(run)}:
            raise HTTPException(404, 'There is no such log.')
        return run, file


def _write(run: Run, changes: dict[str, Any], before: dict[str, Any]) -> Response:
    try:
        return as_json(write_label(run.path, changes, before)._asdict())
    except LabelChangedError as error:
        return refusal(409, str(error))
    except ConfigError as error:
        return refusal(400, str(error))
    except OSError as error:
        return refusal(
            403,
            f'Cannot write {run.path / LABEL_FILE}: {error.strerror}. Names, notes and '
            "what is hidden are kept in the run's folder: the user who runs "
            '`dreamer watch` needs the right to write there.',
        )


async def _body(request: Request) -> bytes:
    data = b''
    try:
        async with asyncio.timeout(BODY_WITHIN):
            async for part in request.stream():
                data += part
                if len(data) > LARGEST_BODY:
                    raise HTTPException(413, f'At most {LARGEST_BODY} bytes.')
    except TimeoutError:
        raise HTTPException(408, 'The change did not arrive in time.') from None
    return data
