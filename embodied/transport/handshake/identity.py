"""Identity: what both ends compare before the first call, and how they prove that they
belong to the run."""

import dataclasses
import hashlib
import hmac
import importlib.metadata
import json
import sys
from collections.abc import Mapping
from typing import Any

from ..errors import MessageError

__all__ = ['Identity', 'differences', 'prove']

PACKAGE = 'dreamer-parallel'
LONGEST = 400  # characters of a shared setting that travel as they are
MAX_SHARED = 1000


@dataclasses.dataclass(frozen=True)
class Identity:
    """What must agree at both ends: versions, and what both of them declare.

    shared: spaces and settings by name. A name that only one end declares is not
    compared, since not every role needs every setting.
    """

    run: str = ''
    shared: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def plain(self) -> dict[str, str]:
        """Texts by name; long ones as their hash."""
        shared = {f'shared {k}': _text(v) for k, v in self.shared.items()}
        run = {'run': self.run} if self.run else {}
        return {**_versions(), **run, **shared}


def differences(ours: Mapping[str, str], theirs: Any) -> list[str]:
    """One line for everything that both ends declare and that differs."""
    if not isinstance(theirs, dict) or len(theirs) > MAX_SHARED:
        raise MessageError('An opening without the names to compare.')
    return [
        f'{name}: server has {ours[name]}, client has {theirs[name]}'
        for name in ours
        if name in theirs and theirs[name] != ours[name]
    ]


def prove(token: str, side: str, nonce: bytes) -> bytes:
    """The answer to a challenge, which needs the token."""
    return hmac.digest(token.encode(), side.encode() + nonce, 'sha256')


def _versions() -> dict[str, str]:
    try:
        package = importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        package = 'not installed'
    python = f'{sys.version_info.major}.{sys.version_info.minor}'
    return {'package': package, 'python': python}


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    if len(text) <= LONGEST:
        return text
    return 'sha256 ' + hashlib.sha256(text.encode()).hexdigest()
