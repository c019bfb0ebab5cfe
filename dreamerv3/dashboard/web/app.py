"""The application: requests about runs, and a stream of their changes."""

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Lifespan

from ..runs.folders import Run
from ..series.chart_data import ChartRequest, rounded
from ..series.curves import Span
from ..series.follower import Follower
from ..series.reference import Reference, frames_per_step
from ..series.series_cache import FIELDS, SeriesCache
from .access import Access
from .answers import as_json, dump
from .groups import chosen_runs, grouped
from .run_requests import HEARTBEAT, STREAM, RunRequests
from .table_requests import TableRequests

__all__ = ['make_app']

STATIC = Path(__file__).parent / 'static'
MOST_METRICS = 60  # per request


def make_app(
    follower: Follower,
    references: Sequence[Reference] = (),
    token: str | None = None,
    read_only: bool = False,
    lifespan: Lifespan[Starlette] | None = None,
) -> Starlette:
    """The dashboard as an ASGI application."""
    view = View(follower, references)
    run, table = RunRequests(follower, read_only), TableRequests(follower)
    return Starlette(
        routes=[
            Route('/', lambda request: FileResponse(STATIC / 'index.html')),
            Route('/api/names', view.names),
            Route('/api/series', view.series),
            Route('/api/options', table.options),
            Route('/api/finals', table.finals),
            Route('/api/distributions', table.distributions),
            Route('/api/runs/{id}', run.details),
            Route('/api/runs/{id}/label', run.label, methods=['PUT']),
            Route('/api/runs/{id}/videos/{file}', run.video),
            Route('/api/runs/{id}/logs/{file}', run.log),
            Route('/api/runs/{id}/logs/{file}/stream', run.log_stream),
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
        return as_json(self._cache.names([run.path for run in self._runs(request)]))

    def series(self, request: Request) -> Response:
        """Curves of metrics, of each run or of each group of runs."""
        query = request.query_params
        runs = self._runs(request)
        names = query.getlist('metric')[:MOST_METRICS]
        x = query.get('x', 'step')
        axis = x if x in FIELDS else 'step'
        groups = grouped(self._follower, runs, query.get('group', ''))
        wanted = ChartRequest(
            axis=FIELDS[axis],
            span=Span(_float(query, 'from', -math.inf), _float(query, 'to', math.inf)),
            groups=[group['runs'] for group in groups],
        )
        found = self._cache.read([run.path for run in runs], names)
        known = {run.id: found[run.path] for run in runs}
        repeats = {run.id: self._repeat(run) for run in runs if axis == 'frames'}
        charts = {}
        for name in names:
            series = {key: run for key, run in known.items() if name in run.series}
            charts[name] = wanted.chart(
                {
                    key: run.over(name, axis, repeats.get(key, 1.0))
                    for key, run in series.items()
                }
            )
        with_band = query.get('reference') == '1' and axis in ('step', 'frames')
        return as_json(
            {
                'charts': charts,
                'groups': groups,
                'reference': self._band(runs, axis) if with_band else [],
                'reading': {k: x.share for k, x in known.items() if x.share < 1},
            }
        )

    async def changes(self, request: Request) -> Response:
        """Server-sent events: all runs at first, then those that change."""
        return StreamingResponse(
            self._stream(), media_type='text/event-stream', headers=STREAM
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
                    'roots': self._follower.places,
                }
                pending.clear()
                yield f'data: {dump(message)}\n\n'
        finally:
            leave()

    def _runs(self, request: Request) -> list[Run]:
        known = self._follower.runs()
        self._cache.retain(run.path for run in known.values())
        return chosen_runs(self._follower, request)

    def _repeat(self, run: Run) -> float:
        options = self._follower.options(run)
        return frames_per_step(options, str(options.get('task', '')))

    def _band(self, runs: Sequence[Run], axis: str) -> list[dict[str, Any]]:
        """Published scores of the tasks of the runs, over their steps or frames."""
        repeats: dict[str, float] = {}
        for run in runs:
            task = str(self._follower.options(run).get('task', ''))
            repeats.setdefault(task, 1.0 if axis == 'frames' else self._repeat(run))
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
