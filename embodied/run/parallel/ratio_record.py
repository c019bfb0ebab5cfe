"""Ratio record: the ratios of a run, on the disk before a step counts for them.

    ckpt/replay/ratio.json   [{"start": 272, "earned": "0", "ratio": "2"}, ...]

Steps are kept as soon as they are stored, also those after the last save. So that a
run that is killed before its first save after a resume still knows from which step on
another ratio holds, the record is written when the replay role starts.
"""

import json
from pathlib import Path

from ...core.errors import CheckpointError
from ...core.files import write_whole
from ..ratio import RatioHistory

__all__ = ['RatioRecord']

NAME = 'ratio.json'


class RatioRecord:
    """The file in the folder of the checkpoints of replay."""

    def __init__(self, folder: Path):
        self._path = folder / NAME

    def read(self) -> RatioHistory | None:
        """None in the folder of a new run, or one of version 0.1.0."""
        if not self._path.exists():
            return None
        try:
            return RatioHistory.load(json.loads(self._path.read_text()))
        except (ValueError, KeyError, TypeError, ZeroDivisionError) as error:
            raise CheckpointError(
                f'{self._path} cannot be read: {error!r}. Remove it to continue with '
                'the train ratio of the last checkpoint of replay.'
            ) from error

    def write(self, history: RatioHistory) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self._path, json.dumps(history.save(), indent=2) + '\n')
