"""The pages of the documentation, which the installed package has as well."""

from pathlib import Path

__all__ = ['page']

FOLDER = Path(__file__).parents[1] / 'docs'  # a link in the repository


def page(name: str) -> str:
    """The path of a page such as `metrics.md` or `your_environment.md#procgen`."""
    return str(FOLDER / name)
