"""Files of a run, opened with suspicion; what they are read with is in `core`."""

from embodied.core.outside import (
    last_lines,
    open_plain,
    parse_object,
    printable,
    read_object,
)

__all__ = ['last_lines', 'open_plain', 'parse_object', 'printable', 'read_object']
