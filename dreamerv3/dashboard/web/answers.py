"""Answers of the dashboard: JSON that every browser can read, and refusals."""

import json
import math
from typing import Any

from starlette.responses import Response

__all__ = ['as_json', 'dump', 'refusal']


def as_json(value: Any, status: int = 200) -> Response:
    headers = {'cache-control': 'no-store'}
    return Response(dump(value), status, headers, media_type='application/json')


def refusal(status: int, message: str) -> Response:
    """A message for the user in place of an answer."""
    return as_json({'message': message}, status)


def dump(value: Any) -> str:
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
