"""Keys of a run: who may talk to its servers over a network.

    server.json   secret of the servers, public keys of the clients they accept, token
    client.json   secret of the clients, public key of the servers, token

A machine that only runs clients needs only client.json. The token proves membership
where the channel itself is not encrypted.
"""

import argparse
import dataclasses
import json
import os
import secrets
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from embodied.core.errors import ConfigError

__all__ = ['ClientKeys', 'Keys', 'ServerKeys', 'create', 'load', 'main']

SERVER_FILE = 'server.json'
CLIENT_FILE = 'client.json'
ENVIRONMENT = 'DREAMER_KEYS'
TOKEN_BYTES = 32


@dataclasses.dataclass(frozen=True)
class ServerKeys:
    """What a server needs; `allowed` are the public keys of its clients."""

    public: str
    secret: str = dataclasses.field(repr=False)
    token: str = dataclasses.field(repr=False)
    allowed: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class ClientKeys:
    """What a client needs; `server` is the public key that it trusts."""

    public: str
    secret: str = dataclasses.field(repr=False)
    token: str = dataclasses.field(repr=False)
    server: str = ''


@dataclasses.dataclass(frozen=True)
class Keys:
    """Both halves, either of which may be missing on this machine."""

    server: ServerKeys | None = None
    client: ClientKeys | None = None


def create(folder: str | Path) -> Keys:
    """Writes fresh keys into a folder, readable by the owner only."""
    import zmq

    folder = Path(folder)
    existing = [f for f in (SERVER_FILE, CLIENT_FILE) if (folder / f).exists()]
    if existing:
        raise ConfigError(
            f'{folder} already holds {existing[0]}. Replacing it would lock out every '
            f'process that uses it; delete the files first if that is intended.'
        )
    server, client = zmq.curve_keypair(), zmq.curve_keypair()
    token = secrets.token_hex(TOKEN_BYTES)
    keys = Keys(
        ServerKeys(
            server[0].decode(), server[1].decode(), token, (client[0].decode(),)
        ),
        ClientKeys(client[0].decode(), client[1].decode(), token, server[0].decode()),
    )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write(folder / SERVER_FILE, keys.server)
    _write(folder / CLIENT_FILE, keys.client)
    return keys


def load(folder: str | Path = '', environ: Mapping[str, str] = os.environ) -> Keys:
    """Keys from the variable DREAMER_KEYS, or else from a folder."""
    if ENVIRONMENT in environ:
        return _from_text(environ[ENVIRONMENT], f'the variable {ENVIRONMENT}')
    texts = []
    for name in (SERVER_FILE, CLIENT_FILE):
        path = Path(folder) / name
        if path.exists():
            _require_private(path)
            texts.append(f'"{name.removesuffix(".json")}": {path.read_text()}')
    if not texts:
        raise ConfigError(
            f'No keys in {folder}. Create them with `dreamer keys {folder}` and copy '
            f'{CLIENT_FILE} to the machines that run clients.'
        )
    return _from_text('{' + ', '.join(texts) + '}', str(folder))


def main(argv: Sequence[str]) -> int:
    """`dreamer keys FOLDER`: creates keys, or prints existing ones for a variable."""
    parser = argparse.ArgumentParser(prog='dreamer keys', description=main.__doc__)
    parser.add_argument('folder', help='usually LOGDIR/keys')
    parser.add_argument(
        '--export', action='store_true', help=f'print them as value of {ENVIRONMENT}'
    )
    args = parser.parse_args(argv)
    if args.export:
        print(json.dumps(dataclasses.asdict(load(args.folder, {}))))
        return 0
    create(args.folder)
    print(f'Wrote {SERVER_FILE} and {CLIENT_FILE} to {args.folder}.')
    print(f'Copy only {CLIENT_FILE} to machines that run environments.')
    return 0


def _write(path: Path, half: ServerKeys | ClientKeys | None) -> None:
    assert half is not None
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), 'w') as file:
        json.dump(dataclasses.asdict(half), file, indent=2)


def _require_private(path: Path) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise ConfigError(
            f'{path} has mode {mode:04o}: others could read the secret. '
            f'Say `chmod 600 {path}`.'
        )


def _from_text(text: str, origin: str) -> Keys:
    try:
        plain = json.loads(text)
        server, client = plain.get('server'), plain.get('client')
        return Keys(
            server
            and ServerKeys(**{**server, 'allowed': tuple(server.get('allowed', ()))}),
            client and ClientKeys(**client),
        )
    except (ValueError, TypeError, AttributeError) as e:
        raise ConfigError(
            f'The keys from {origin} cannot be read: {e}. Create new ones with '
            f'`dreamer keys FOLDER`.'
        ) from e
