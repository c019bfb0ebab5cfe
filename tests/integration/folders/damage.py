"""Damage to a run's folder, chosen by a seed: what a disk or a careless copy does."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

MOST_FLIPS = 64  # bytes
GARBAGE = 4096  # bytes of a file that is none of ours
FOREIGN_NAMES = (  # files that do not belong to the run
    'replay/00000099.seg',
    'replay/notes.txt',
    'ckpt/agent/backup/agent.pkl',
    'ckpt/agent/000000009999-20990101T000000.000000/manifest.json',
    'ckpt/replay/latest.old',
    'status.json.1',
)


class Damage(NamedTuple):
    """What was done, and to which paths, relative to the folder."""

    kind: str
    paths: tuple[str, ...]

    def hits(self, path: str) -> bool:
        """Whether a file is damaged, itself or with a folder that holds it."""
        return any(path == x or path.startswith(f'{x}/') for x in self.paths)

    @property
    def names(self) -> set[str]:
        """Words by which a message can name what is damaged."""
        return {name for path in self.paths for name in (path, Path(path).name)}


def harm(folder: Path, donor: Path, seed: int) -> Damage:
    """Damages a folder in one way; `donor` is a run with other spaces."""
    rng = random.Random(seed)
    kind = rng.choice(list(KINDS))
    return Damage(kind, tuple(KINDS[kind](folder, donor, rng)))


def flip(folder: Path, donor: Path, rng: random.Random) -> list[str]:
    """Changes some bytes, half of the time next to each other."""
    path = _choose(folder, rng)
    data = bytearray(path.read_bytes())
    count = rng.randint(1, MOST_FLIPS)
    start = _where(data, rng)
    together = rng.random() < 0.5
    for index in range(count):
        place = start + index if together else _where(data, rng)
        data[place % len(data)] ^= rng.randint(1, 255)
    path.write_bytes(data)
    return [_name(path, folder)]


def truncate(folder: Path, donor: Path, rng: random.Random) -> list[str]:
    path = _choose(folder, rng)
    size = path.stat().st_size
    os.truncate(path, rng.choice([0, size // 2, size - 1, rng.randrange(size)]))
    return [_name(path, folder)]


def delete(folder: Path, donor: Path, rng: random.Random) -> list[str]:
    path = _choose(folder, rng)
    path.unlink()
    return [_name(path, folder)]


def delete_folder(folder: Path, donor: Path, rng: random.Random) -> list[str]:
    folders = sorted(x for x in folder.rglob('*') if x.is_dir())
    path = rng.choice(folders)
    shutil.rmtree(path)
    return [_name(path, folder)]


def swap(folder: Path, donor: Path, rng: random.Random) -> list[str]:
    """Two files change places, most often of the same kind."""
    one = _choose(folder, rng)
    others = [x for x in _files(folder) if x != one]
    alike = [x for x in others if x.suffix == one.suffix]
    two = rng.choice(alike if alike and rng.random() < 0.8 else others)
    data = one.read_bytes(), two.read_bytes()
    one.write_bytes(data[1])
    two.write_bytes(data[0])
    return [_name(x, folder) for x in (one, two)]


def replace(folder: Path, donor: Path, rng: random.Random) -> list[str]:
    """A file of another run, or none of ours, in the place of one."""
    path = _choose(folder, rng)
    alike = [x for x in _files(donor) if x.suffix == path.suffix]
    if alike and rng.random() < 0.6:
        path.write_bytes(rng.choice(alike).read_bytes())
    else:
        path.write_bytes(rng.randbytes(rng.randrange(1, GARBAGE)))
    return [_name(path, folder)]


def add(folder: Path, donor: Path, rng: random.Random) -> list[str]:
    """A file that does not belong there."""
    path = folder / rng.choice(FOREIGN_NAMES)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(rng.randbytes(rng.randrange(GARBAGE)))
    return [_name(path, folder)]


KINDS: dict[str, Callable[[Path, Path, random.Random], list[str]]] = {
    x.__name__: x for x in (flip, truncate, delete, delete_folder, swap, replace, add)
}


def _files(folder: Path) -> list[Path]:
    return sorted(x for x in folder.rglob('*') if x.is_file() and x.stat().st_size)


def _choose(folder: Path, rng: random.Random) -> Path:
    """First a place within the run, then a file there: there are many small files."""
    places: dict[str, list[Path]] = {}
    for path in _files(folder):
        top, *inner = path.relative_to(folder).parts
        places.setdefault(top if inner else path.name, []).append(path)
    heavy = [x for x in ('ckpt', 'replay') if x in places]  # what must not get lost
    return rng.choice(places[rng.choice([*places, *3 * heavy])])


def _where(data: bytearray, rng: random.Random) -> int:
    """Anywhere, but rather where something is: segments are mostly empty."""
    places = [rng.randrange(len(data)) for _ in range(16)]
    return next((x for x in places if data[x]), places[0])


def _name(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder))
