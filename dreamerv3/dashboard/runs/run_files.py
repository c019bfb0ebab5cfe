"""Files of a run, read as input from outside: see `embodied.core.outside`."""

from embodied.core.outside import (
    last_lines,
    open_plain,
    parse_object,
    printable,
    read_object,
)

__all__ = ['last_lines', 'open_plain', 'parse_object', 'printable', 'read_object']
