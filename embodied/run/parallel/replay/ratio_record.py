"""Ratio record: the ratios of a run, on the disk before a step counts for them.

    ckpt/replay/ratio.json   {"ratios": [{"start": 272, "earned": "0", "ratio": "2"},
                                         ...], "checksum": ...}

Steps are kept as soon as they are stored, also those after the last save. So that a
run that is killed before its first save after a resume still knows from which step on
another ratio holds, the record is written when the replay role starts.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ....core.files import read_sealed, seal, set_aside, write_whole
from ...shared.ratio import RatioHistory

__all__ = ['RatioRecord']

NAME = 'ratio.json'
DAMAGED = (OSError, ValueError, KeyError, TypeError, ZeroDivisionError)


class RatioRecord:
    """The file in the folder of the checkpoints of replay. note: adds an event."""

    def __init__(self, folder: Path, note: Callable[..., Any]):
        self._path = folder / NAME
        self._note = note

    def read(self) -> RatioHistory | None:
        """None in the folder of a new run, or one of version 0.1.0.

        A record that cannot be read is set aside: the last checkpoint of replay holds
        the ratios as well, as they were then.
        """
        if not self._path.exists():
            return None
        try:
            return RatioHistory.load(read_sealed(self._path, frozenset())['ratios'])
        except DAMAGED as error:
            kept = set_aside(self._path).name
            print(
                f'{self._path} cannot be read ({error}) and is kept as {kept}. The '
                'train ratio goes on from the last checkpoint of replay.',
                file=sys.stderr,
            )
            self._note('damaged', file=str(self._path), reason=str(error), kept=kept)
            return None

    def write(self, history: RatioHistory) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        record = seal({'ratios': history.save()})
        write_whole(self._path, json.dumps(record, indent=2) + '\n')
