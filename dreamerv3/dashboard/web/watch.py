"""`dreamer watch LOGDIR...`: serves the dashboard until it is interrupted."""

import argparse
import contextlib
import secrets
import sys
from collections.abc import Sequence
from urllib.parse import urlencode

from embodied.core.errors import MissingExtraError

from ..runs.folders import check_roots
from ..series.reference import read_reference

__all__ = ['main']

HOST, PORT = '127.0.0.1', 8765
TOKEN_BYTES = 16
NO_INDEX = 'the dashboard keeps what it has read in memory. The file can be deleted.'


def main(argv: Sequence[str]) -> int:
    """Serves until Ctrl-C or SIGTERM; returns the exit status."""
    args = _parser().parse_args(argv)
    try:
        from . import access
        from . import http_server as serving
    except ImportError as e:
        raise MissingExtraError(
            f"The dashboard needs {e.name}: pip install 'dreamer-parallel[web]'"
        ) from e
    if args.index:
        print(f'--index {args.index} is not used: {NO_INDEX}', file=sys.stderr)
    roots = check_roots(args.logdir)
    references = read_reference(args.reference) if args.reference else []
    token = args.token
    if not token and not access.is_loopback(args.host):
        token = secrets.token_urlsafe(TOKEN_BYTES)
    with serving.listen(args.host, args.port) as place:
        host, port = place.getsockname()[:2]
        address = f'[{host}]:{port}' if ':' in host else f'{host}:{port}'
        query = f'?{urlencode({"token": token})}' if token else ''
        print(f'Dashboard: http://{address}/{query}', flush=True)
        with contextlib.suppress(KeyboardInterrupt):  # the usual end
            serving.serve(place, roots, references, token, args.read_only)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        'dreamer watch', description='Shows runs in a browser, live.'
    )
    parser.add_argument(
        'logdir', nargs='+', help='folder of a run, or one that holds several'
    )
    parser.add_argument(
        '--host',
        default=HOST,
        help=f'interface to serve on, {HOST} by default; others need the token',
    )
    parser.add_argument('--port', type=int, default=PORT, help=f'{PORT} by default')
    parser.add_argument('--token', help='secret to ask for; chosen when needed')
    parser.add_argument(
        '--read-only',
        action='store_true',
        help='refuse to rename and hide runs, and to write notes',
    )
    parser.add_argument(
        '--reference',
        help='CSV of published scores to draw in gray: '
        'suite,task,env_frames,seeds,mean,min,max',
    )
    parser.add_argument('--index', help=argparse.SUPPRESS)  # until version 0.3.0
    return parser
