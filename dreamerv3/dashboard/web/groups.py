"""Groups: the runs that a request is about, and which of them are drawn as one."""

from typing import Any

from starlette.requests import Request

from ..runs.folders import Run
from ..series.follower import Follower

__all__ = ['chosen_runs', 'grouped']

SEEDS, OPTION = 'seeds', 'option:'


def chosen_runs(follower: Follower, request: Request) -> list[Run]:
    """The runs that a request names, in its order."""
    known = follower.runs()
    wanted = request.query_params.get('runs', '').split(',')
    return [known[key] for key in dict.fromkeys(wanted) if key in known]


def grouped(follower: Follower, runs: list[Run], by: str) -> list[dict[str, Any]]:
    """Ids of runs that are drawn as one, in the order of the first of each.

    by: `seeds` for runs that differ by seed only, `option:NAME` for an option, whose
    text is the `value` of the group (None if the runs lack it), '' for each run alone.
    """
    summaries = follower.summaries() if by == SEEDS else {}
    name = by.removeprefix(OPTION) if by.startswith(OPTION) else None
    groups: dict[Any, dict[str, Any]] = {}
    for run in runs:
        value = None
        key: Any = run.id
        if by == SEEDS:
            key = summaries.get(run.id, {}).get('group') or run.id
        elif name is not None:
            options = follower.options(run)
            value = str(options[name]) if name in options else None
            key = (value,)
        groups.setdefault(key, {'runs': [], 'value': value})['runs'].append(run.id)
    return list(groups.values())
