"""Opening: finds out what kind of data a folder holds."""

from pathlib import Path

from ..core.errors import ReplayError
from ..replay.recovery.folder import find_folder
from .minari_files import PREFIX, MinariFiles, is_dataset
from .npz_files import SUFFIX, NpzFiles
from .replay_files import ReplayFiles
from .source import Source

__all__ = ['open_source']

KINDS = (
    f'the folder of a run or of its replay, a folder of {SUFFIX} files with one '
    f'episode each, the folder of a Minari dataset, or {PREFIX}ID'
)
RUN = 'config.yaml'  # in the folder of a run


def open_source(text: str) -> Source:
    """The recorded episodes that one value of `--data` names."""
    if text.startswith(PREFIX):
        return MinariFiles(text)
    path = Path(text).expanduser()
    if not path.exists():
        raise ReplayError(f'There is no folder {text}. Data are {KINDS}.')
    if not path.is_dir():
        raise ReplayError(f'{text} is a file. Data are {KINDS}.')
    if is_dataset(path):
        return MinariFiles(text)
    if _has_replay(path):
        return ReplayFiles(text, path)
    if files := list(path.glob(f'*{SUFFIX}')):
        return NpzFiles(text, files)
    raise ReplayError(_why_not(text, path))


def _has_replay(path: Path) -> bool:
    try:
        find_folder(path)
    except ReplayError:
        return False
    return True


def _why_not(text: str, path: Path) -> str:
    names = sorted(x.name for x in path.iterdir())
    if not names:
        return f'The folder {text} is empty. Data are {KINDS}.'
    if RUN in names:
        return (
            f'The run in {text} has no replay folder: runs in one process keep their '
            'replay in their checkpoints. Record with `dreamer parallel`, or with '
            '--replay.dir FOLDER, and give that folder.'
        )
    shown = ', '.join(names[:3]) + (', ...' if len(names) > 3 else '')
    return f'The folder {text} holds no episodes, only {shown}. Data are {KINDS}.'
