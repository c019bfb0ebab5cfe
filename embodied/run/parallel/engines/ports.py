"""Ports of a run: free ones for `{auto}`, checks for the addresses that are given."""

from ....core.errors import ConfigError
from ....transport import addresses, free_port, keys
from ..settings import ParallelSettings

__all__ = ['check', 'is_replaceable', 'require_fixed', 'resolve']

NAMES = ('actor_addr', 'replay_addr', 'logger_addr')
AUTO = '{auto}'


def resolve(settings: ParallelSettings) -> dict[str, str]:
    """Addresses by name, with free ports in place of {auto}."""
    resolved: dict[str, str] = {}
    taken = {getattr(settings, name) for name in NAMES}
    for name in NAMES:
        address = given = getattr(settings, name)
        while AUTO in given and address in taken:
            address = given.replace(AUTO, str(free_port()))
        taken.add(address)
        resolved[name] = address
    return resolved


def is_replaceable(address: str, settings: ParallelSettings) -> bool:
    """Whether the port of an address is one that `resolve` has chosen."""
    given = [getattr(settings, name) for name in NAMES]
    fixed = {addresses.parse(text).port for text in given if AUTO not in text}
    return bool(address) and addresses.parse(address).port not in fixed


def check(settings: ParallelSettings) -> None:
    """Refuses addresses with which roles could not find each other."""
    fixed = _fixed_for(settings)
    seen: dict[int, str] = {}
    for name in NAMES:
        given = getattr(settings, name)
        if name in fixed:
            require_fixed(name, settings)
        address = addresses.parse(given.replace(AUTO, '1'))
        if AUTO not in given and seen.setdefault(address.port, name) != name:
            raise ConfigError(
                f'run.{name}={given} and run.{seen[address.port]} have the same port. '
                'Each server needs its own.'
            )
        if not address.loopback:
            _check_network(name, given, settings)


def require_fixed(name: str, settings: ParallelSettings) -> None:
    """Refuses a port that the run chooses, if jobs outside of it have to know it."""
    given = getattr(settings, name)
    if AUTO in given:
        raise ConfigError(
            f'run.{name}={given} has no fixed port, so jobs that are started apart '
            '(run.remote_envs, run.remote_replay) could not find it. Give host:port.'
        )


def _fixed_for(settings: ParallelSettings) -> set[str]:
    """Names of the addresses that other jobs must know."""
    fixed = {'actor_addr'} if settings.remote_envs else set()
    return fixed | ({'replay_addr', 'logger_addr'} if settings.remote_replay else set())


def _check_network(name: str, given: str, settings: ParallelSettings) -> None:
    if settings.transport == 'portal':
        raise ConfigError(
            f'run.{name}={given} is reachable from other machines, and portal cannot '
            'authenticate clients. Use localhost, or run.transport=native.'
        )
    keys.load(settings.logdir / 'keys')  # refuses with what to do
