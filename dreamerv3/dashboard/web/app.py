"""The application: requests about runs, and a stream of their changes."""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Lifespan

from ..runs.folders import PICTURES, Run, pictures
from ..runs.state import read_events
from ..series.chart_data import ChartRequest, rounded
from ..series.curves import Span
from ..series.follower import Follower
from ..series.reference import Reference, frames_per_step
from ..series.series_cache import SeriesCache
from .access import Access

__all__ = ['make_app']

STATIC = Path(__file__).parent / 'static'
MOST_METRICS = 60  # per request
HEARTBEAT = 15.0  # seconds without changes after which a stream sends a comment


def make_app(
    follower: Follower,
    references: Sequence[Reference] = (),
    token: str | None = None,
    lifespan: Lifespan[Starlette] | None = None,
) -> Starlette:
    """The dashboard as an ASGI application."""
    view = View(follower, references)
    return Starlette(
        routes=[
            Route('/', lambda request: FileResponse(STATIC / 'index.html')),
            Route('/api/names', view.names),
            Route('/api/series', view.series),
            Route('/api/runs/{id}', view.run),
            Route('/api/runs/{id}/videos/{file}', view.video),
            Route('/api/changes', view.changes),
            Mount('/static', StaticFiles(directory=STATIC)),
        ],
        middleware=[Middleware(Access, token=token), Middleware(GZipMiddleware)],
        lifespan=lifespan,
    )


class View:
    """Handlers of requests. Plain methods run in threads, so that they may block."""

    def __init__(self, follower: Follower, references: Sequence[Reference]):
        self._follower = follower
        self._cache = SeriesCache()
        self._references = references

    def names(self, request: Request) -> Response:
        """Metrics that any of the runs has, as far as their files are read."""
        return _json(self._cache.names([run.path for run in self._runs(request)]))

    def series(self, request: Request) -> Response:
        """Curves of metrics, of each run or of each group of seeds."""
        query = request.query_params
        runs = self._runs(request)
        names = query.getlist('metric')[:MOST_METRICS]
        wanted = ChartRequest(
            axis='time' if query.get('x') == 'time' else 'step',
            span=Span(_float(query, 'from', -math.inf), _float(query, 'to', math.inf)),
            groups=self._groups(runs, merge=query.get('merge') == '1'),
        )
        found = self._cache.read([run.path for run in runs], names)
        known = {run.id: found[run.path] for run in runs}
        charts = {}
        for name in names:
            series = {key: run for key, run in known.items() if name in run.series}
            charts[name] = wanted.chart(
                {key: run.over(name, wanted.axis) for key, run in series.items()}
            )
        with_band = query.get('reference') == '1' and wanted.axis == 'step'
        return _json(
            {
                'charts': charts,
                'reference': self._band(runs) if with_band else [],
                'reading': {k: x.share for k, x in known.items() if x.share < 1},
            }
        )

    def run(self, request: Request) -> Response:
        """Options, events and videos of a run."""
        run = self._run(request.path_params['id'])
        return _json(
            {
                'id': run.id,
                'options': self._follower.options(run),
                'events': read_events(run.path),
                'videos': pictures(run),
            }
        )

    def video(self, request: Request) -> Response:
        """A picture or video, if it is one of those that the run lists."""
        run = self._run(request.path_params['id'])
        file = request.path_params['file']
        if file not in {item['file'] for item in pictures(run)}:
            raise HTTPException(404, 'There is no such video.')
        path = run.path / 'videos' / file
        return FileResponse(path, media_type=PICTURES[path.suffix])

    async def changes(self, request: Request) -> Response:
        """Server-sent events: all runs at first, then those that change."""
        headers = {'cache-control': 'no-store', 'x-accel-buffering': 'no'}
        return StreamingResponse(
            self._stream(), media_type='text/event-stream', headers=headers
        )

    async def _stream(self) -> AsyncIterator[str]:
        loop, wake = asyncio.get_running_loop(), asyncio.Event()
        pending: dict[str, Any] = {}

        def take(changed: dict[str, Any], gone: list[str]) -> None:
            pending.update(changed)
            for key in gone:
                pending.pop(key, None)
            wake.set()

        def listener(changed: dict[str, Any], gone: list[str]) -> None:
            loop.call_soon_threadsafe(take, changed, gone)

        leave = self._follower.listen(listener)
        try:
            yield 'retry: 1000\n\n'
            while not self._follower.closed:
                try:
                    await asyncio.wait_for(wake.wait(), HEARTBEAT)
                except TimeoutError:
                    yield ': heartbeat\n\n'
                    continue
                wake.clear()
                # A slow page gets several changes as one.
                message = {
                    'runs': dict(pending),
                    'ids': list(self._follower.runs()),
                    'reference': bool(self._references),
                }
                pending.clear()
                yield f'data: {_dump(message)}\n\n'
        finally:
            leave()

    def _runs(self, request: Request) -> list[Run]:
        known = self._follower.runs()
        self._cache.retain(run.path for run in known.values())
        wanted = request.query_params.get('runs', '').split(',')
        return [known[key] for key in dict.fromkeys(wanted) if key in known]

    def _run(self, key: str) -> Run:
        try:
            return self._follower.runs()[key]
        except KeyError:
            raise HTTPException(404, 'There is no such run.') from None

    def _groups(self, runs: list[Run], merge: bool) -> list[list[str]]:
        """Ids of runs that are drawn as one: seeds of one experiment, or each alone."""
        summaries = self._follower.summaries()
        groups: dict[str, list[str]] = {}
        for run in runs:
            key = merge and summaries.get(run.id, {}).get('group')
            groups.setdefault(key or run.id, []).append(run.id)
        return list(groups.values())

    def _band(self, runs: Sequence[Run]) -> list[dict[str, Any]]:
        """Published scores of the tasks of the runs, over their steps."""
        repeats: dict[str, float] = {}
        for run in runs:
            options = self._follower.options(run)
            task = str(options.get('task', ''))
            repeats.setdefault(task, frames_per_step(options, task))
        return [
            {
                'label': f'{curve.task} ({curve.suite}, {curve.seeds} seeds)',
                'x': rounded(curve.frames / repeat),
                'mean': rounded(curve.mean),
                'low': rounded(curve.low),
                'high': rounded(curve.high),
            }
            for curve in self._references
            for task, repeat in repeats.items()
            if curve.is_of(task)
        ]


def _float(query: QueryParams, name: str, default: float) -> float:
    try:
        value = float(query.get(name, default))
    except ValueError:
        return default
    return default if math.isnan(value) else value


def _json(value: Any) -> Response:
    headers = {'cache-control': 'no-store'}
    return Response(_dump(value), headers=headers, media_type='application/json')


def _dump(value: Any) -> str:
    """JSON in ASCII: whatever was in the files, this is well formed."""
    return json.dumps(_finite(value), allow_nan=False, separators=(',', ':'))


def _finite(value: Any) -> Any:
    """Numbers that JSON and the page cannot express become null."""
    if isinstance(value, dict):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
