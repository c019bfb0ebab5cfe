"""Requests about all runs at once: options as columns, final scores, distributions."""

import threading
import time
from collections import Counter
from collections.abc import Collection

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from ..figures.distribution import distributions
from ..figures.final_score import LAST, final_score
from ..runs.folders import Run
from ..series.file_end import last_points
from ..series.follower import Follower
from .answers import as_json
from .groups import chosen_runs, grouped

__all__ = ['TableRequests']

MOST_COLUMNS = 40  # options per request
WITHIN = 0.3  # seconds of reading per request
NO_STAMP = (0, 0)
KINDS = ('score', 'length')


class TableRequests:
    """Handlers. They run in threads, so that they may block."""

    def __init__(self, follower: Follower):
        self._follower = follower
        self._lock = threading.Lock()
        # Scores by run, with the size and time of the file that they were read from.
        self._finals: dict[str, tuple[tuple[int, int], float | None]] = {}

    def options(self, request: Request) -> Response:
        """Names of all options with the number of their values, and some as columns."""
        names = request.query_params.getlist('name')[:MOST_COLUMNS]
        values: dict[str, Counter[str]] = {}
        columns = {}
        for run in self._known(self._follower.summaries()):
            options = self._follower.options(run)
            for name, value in options.items():
                values.setdefault(name, Counter())[str(value)] += 1
            columns[run.id] = {name: options[name] for name in names if name in options}
        return as_json(
            {
                # An option that some runs lack differs, too.
                'names': {
                    name: len(found) + (found.total() < len(columns))
                    for name, found in sorted(values.items())
                },
                'runs': columns,
            }
        )

    def finals(self, request: Request) -> Response:
        """Final scores as far as they are read, and how many are yet to be."""
        summaries = self._follower.summaries()
        deadline = time.monotonic() + WITHIN
        waiting = 0
        with self._lock:
            for run in self._known(summaries):
                stamp = summaries[run.id]['files'].get('scores.jsonl', NO_STAMP)
                if self._finals.get(run.id, (None,))[0] == stamp:
                    continue
                if time.monotonic() > deadline:
                    waiting += 1
                    continue
                self._finals[run.id] = stamp, final_score(run.path)
            for key in self._finals.keys() - summaries.keys():
                del self._finals[key]
            found = {key: score for key, (_, score) in self._finals.items()}
        return as_json({'scores': found, 'waiting': waiting})

    def distributions(self, request: Request) -> Response:
        """Histograms of the scores or lengths of episodes, of each run or group."""
        query = request.query_params
        runs = chosen_runs(self._follower, request)
        kind = query.get('kind') if query.get('kind') in KINDS else 'score'
        prefix = 'scores/eval/' if query.get('eval') == '1' else 'scores/'
        share = 1.0 if query.get('part') == 'all' else LAST
        groups = grouped(self._follower, runs, query.get('group', ''))
        paths = {run.id: run.path for run in runs}
        values = {}
        for group in groups:
            found = [
                last_points(paths[key] / 'scores.jsonl', f'{prefix}{kind}', share)
                for key in group['runs']
            ]
            values[group['runs'][0]] = np.concatenate(found)['mean']
        return as_json({**distributions(values), 'members': groups})

    def _known(self, summaries: Collection[str]) -> list[Run]:
        """Runs whose summaries are there, and so their options."""
        return [run for key, run in self._follower.runs().items() if key in summaries]
