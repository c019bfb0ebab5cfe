"""The `dreamer` command before anything else is imported.

The reference implementation installs packages of the same names, `dreamerv3` and
`embodied`. This module has a name of its own, so it can say that they are in the way.
"""

import importlib.util
import sys
from importlib import metadata
from pathlib import Path

__all__ = ['find_conflicts', 'main']

DISTRIBUTION = 'dreamer-parallel'
PACKAGES = ('dreamerv3', 'embodied')
RIVALS = ('dreamerv3', 'embodied')  # distributions with packages of these names
HOME = Path(__file__).resolve().parent
CONFLICT = 2  # exit code


def main(home: Path = HOME) -> int:
    """Runs the command unless packages of another distribution would be imported.

    home: the folder of ours, which may be a changed copy.
    """
    conflicts = find_conflicts(home)
    if conflicts:
        print(f'dreamer: {" ".join(conflicts)}', file=sys.stderr)
        return CONFLICT
    from dreamerv3.__main__ import main as run

    return run()


def find_conflicts(home: Path = HOME) -> list[str]:
    """One sentence per package of ours that is not the one that Python would import,
    or that another distribution has written to, and then what to do."""
    found = [text for name in PACKAGES if (text := _conflict(name, home))]
    if found:
        found.append(
            'Uninstall what is in the way and install dreamer-parallel again, or give '
            'it a virtual environment of its own.'
        )
    return found


def _conflict(name: str, home: Path) -> str:
    spec = importlib.util.find_spec(name)
    places = list(spec.submodule_search_locations or ()) if spec else []
    if not places:
        return f'The package {name} of {DISTRIBUTION} is missing in {home}.'
    place = Path(places[0]).resolve()
    if place.parent != home:
        return f'{place} takes the place of the package {name} in {home}.'
    others = [x for x in RIVALS if _has_files(x, name, home)]
    if others:
        return (
            f'The distribution {", ".join(others)} has installed files into {place}, '
            f'the package {name} of {DISTRIBUTION}.'
        )
    return ''


def _has_files(distribution: str, package: str, home: Path) -> bool:
    """Whether files of a distribution are in our package, and not elsewhere."""
    try:
        files = metadata.files(distribution) or []
    except metadata.PackageNotFoundError:
        return False
    inside = (x for x in files if x.parts[:1] == (package,))
    return any(Path(x.locate()).resolve().is_relative_to(home) for x in inside)


if __name__ == '__main__':
    raise SystemExit(main())
