"""Hosts: network namespaces that stand for machines, joined by cables.

    with Hosts('agent', 'envs') as hosts:
        hosts.start('agent', command)     a process that sees that host's network alone

Each host has a cable to `net`, which forwards nothing: other hosts are reached through
a proxy there. Abstract Unix sockets belong to one namespace, too.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

PROXY = Path(__file__).with_name('slow_network.py')
NET = 'net'
NAMES = Path('/etc/netns')  # `ip netns exec` puts the files in there over those of /etc
CLOCK_AHEAD = 1_000_000  # seconds that the clock of a host differs by


def missing():
    """Why this machine cannot make hosts, or nothing."""
    if not shutil.which('ip') or not shutil.which('unshare'):
        return 'needs network namespaces: apt-get install iproute2 util-linux'
    name = f'dreamer-try-{os.getpid()}'
    made = ip('netns', 'add', name, check=False)
    if made.returncode:
        return (
            f'needs network namespaces: run the tests as root ({made.stderr.strip()})'
        )
    ends = ('name', 'near', 'type', 'veth', 'peer', 'name', 'far')
    cable = ip('-n', name, 'link', 'add', *ends, check=False)
    ip('netns', 'del', name)
    return (
        cable.returncode
        and f'needs virtual cables: modprobe veth ({cable.stderr.strip()})'
        or ''
    )


class Hosts:
    """Makes hosts by name; `address` is theirs, `gate` that of `net` at their cable."""

    def __init__(self, *names):
        self._numbers = {name: i for i, name in enumerate(names)}
        self._processes = []

    def __enter__(self):
        try:
            for name in (NET, *self._numbers):
                ip('netns', 'add', self._space(name))
                self._ip(name, 'link', 'set', 'lo', 'up')
            for name in self._numbers:
                self._join(name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc):
        for process in self._processes:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe:
                    pipe.close()
        for name in (NET, *self._numbers):
            ip('netns', 'del', self._space(name), check=False)
            shutil.rmtree(NAMES / self._space(name), ignore_errors=True)

    def address(self, name, version=4):
        return self._at(name, 2, version)

    def gate(self, name, version=4):
        return self._at(name, 1, version)

    def prefix(self, name, clock=0):
        """What to put before a command to run it on this host.

        clock: seconds by which the host's monotonic clock is ahead of ours.
        """
        command = ['ip', 'netns', 'exec', self._space(name)]
        shift = ['unshare', '--time', '--monotonic', str(clock), '--kill-child']
        return command + (shift if clock else [])

    def start(self, name, command, clock=0, **options):
        """A Python process there, which ends with the hosts at the latest."""
        command = [*self.prefix(name, clock), sys.executable, *map(str, command)]
        process = subprocess.Popen(command, text=True, **options)
        self._processes.append(process)
        return process

    def name(self, host, **addresses):
        """From now on processes on a host know others by these names.

        To be called before the first of them is started, and then as often as needed.
        """
        folder = NAMES / self._space(host)
        folder.mkdir(parents=True, exist_ok=True)
        lines = [f'{address} {name}' for name, address in addresses.items()]
        # In place: what processes see as /etc/hosts is this very file.
        (folder / 'hosts').write_text('127.0.0.1 localhost\n' + '\n'.join(lines) + '\n')

    def proxy(self, *routes):
        """A slow network: (from host, to host, port) each; see slow_network.py."""
        return Network(self, routes)

    def _join(self, name):
        number = self._numbers[name]
        near, far = f'to{number}', f'from{number}'
        peer = ('peer', 'name', far, 'netns', self._space(name))
        self._ip(NET, 'link', 'add', near, 'type', 'veth', *peer)
        for space, device, at in ((NET, near, self.gate), (name, far, self.address)):
            self._ip(space, 'addr', 'add', f'{at(name)}/24', 'dev', device)
            address = f'{at(name, 6)}/64'
            # Without the search for duplicates it can be used at once.
            self._ip(space, '-6', 'addr', 'add', address, 'dev', device, 'nodad')
            self._ip(space, 'link', 'set', device, 'up')

    def _at(self, name, end, version):
        number = self._numbers[name]
        return f'10.77.{number}.{end}' if version == 4 else f'fd77:{number}::{end}'

    def _ip(self, space, *args):
        return ip('-n', self._space(space), *args)

    def _space(self, name):
        return f'dreamer-{os.getpid()}-{name}'


class Network:
    """The proxy between hosts; without a command it neither delays nor cuts."""

    def __init__(self, hosts, routes):
        pairs = []
        for source, target, port in routes:
            pairs += [f'{hosts.gate(source)},{port}', f'{hosts.address(target)},{port}']
        pipes = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE}
        self._process = hosts.start(NET, [PROXY, *pairs], **pipes)
        assert self._process.stdout.readline() == 'ready\n'

    def command(self, command, value=0):
        """Changes the conditions; returns what has happened so far, as a dict."""
        self._process.stdin.write(f'{command} {value}\n')
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def ip(*args, check=True):
    run = subprocess.run(
        ['ip', *args], capture_output=True, text=True, check=False, timeout=60
    )
    assert not check or not run.returncode, (args, run.stderr)
    return run
