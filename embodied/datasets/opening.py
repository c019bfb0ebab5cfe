"""Opening: finds out what kind of data a folder holds."""

from pathlib import Path

from ..core.checkpoint import RUN_SUBFOLDER, Checkpoint
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


def open_source(text: str, trust: bool = False) -> Source:
    """The recorded episodes that one value of `--data` names.

    trust: loads checkpoints of others whatever is in them.
    """
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
        return ReplayFiles(text, path, trust)
    if files := list(path.glob(f'*{SUFFIX}')):
        return NpzFiles(text, files)
    raise ReplayError(_why_not(text, path))


def _has_replay(path: Path) -> bool:
    try:
        find_folder(path)
    except ReplayError:
        return Checkpoint(path / RUN_SUBFOLDER).exists()
    return True


def _why_not(text: str, path: Path) -> str:
    names = sorted(x.name for x in path.iterdir())
    if not names:
        return f'The folder {text} is empty. Data are {KINDS}.'
    shown = ', '.join(names[:3]) + (', ...' if len(names) > 3 else '')
    return f'The folder {text} holds no episodes, only {shown}. Data are {KINDS}.'
