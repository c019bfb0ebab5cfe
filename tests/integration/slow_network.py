"""Slow network: a proxy that delays, throttles and cuts what passes through it.

    python slow_network.py LISTEN FORWARD [LISTEN FORWARD ...]

Each pair is `host,port`. It prints `ready`, then reads commands, one per line, and
answers each with a JSON line of what has happened so far:

    delay SECONDS       from now on bytes arrive so much later, in either direction
    rate BYTES          per second and direction, all connections together; 0: no limit
    cut SECONDS         ends a random connection that often on average; 0: none
    count               changes nothing
"""

import asyncio
import contextlib
import json
import random
import sys
import time

CHUNK = 1 << 16  # bytes read at a time
QUEUED = 1024  # reads on their way in one direction of one connection


class Proxy:
    """The conditions of the network, and all connections through it."""

    def __init__(self):
        self.delay = 0.0
        names = ('connections', 'cuts', 'bytes', 'chunks', 'seconds')
        self.counts = dict.fromkeys(names, 0)  # seconds: that chunks were on their way
        self._rate = 0.0
        self._free = [0.0, 0.0]  # when each direction can carry the next byte
        self._open = set()  # transports of clients
        self._cutting = None
        self._random = random.Random(0)

    async def serve(self, listen, forward):
        connect = lambda reader, writer: self._connect(reader, writer, forward)
        await asyncio.start_server(connect, *listen, limit=CHUNK)

    def execute(self, command, value=0.0):
        if command == 'delay':
            self.delay = value
        elif command == 'rate':
            self._rate = value
        elif command == 'cut':
            if self._cutting:
                self._cutting.cancel()
            self._cutting = asyncio.create_task(self._cut(value)) if value else None
        else:
            assert command == 'count', command

    def due(self, direction, nbytes):
        """When bytes that are here now have arrived."""
        begin = max(time.monotonic(), self._free[direction])
        end = begin + (nbytes / self._rate if self._rate else 0.0)
        self._free[direction] = end
        self.counts['bytes'] += nbytes
        return end + self.delay

    async def _connect(self, reader, writer, forward):
        try:
            far_reader, far_writer = await asyncio.open_connection(
                *forward, limit=CHUNK
            )
        except OSError:
            writer.transport.abort()  # no server is there yet
            return
        self.counts['connections'] += 1
        self._open.add(writer.transport)
        ways = ((reader, far_writer, 0), (far_reader, writer, 1))
        tasks = [asyncio.create_task(self._carry(*way)) for way in ways]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        self._open.discard(writer.transport)
        for end in (writer, far_writer):
            end.transport.abort()
        for task in tasks:
            task.cancel()

    async def _carry(self, reader, writer, direction):
        """One direction: reading goes on while earlier bytes are on their way."""
        way = asyncio.Queue(QUEUED)
        delivery = asyncio.create_task(self._deliver(way, writer))
        try:
            while data := await reader.read(CHUNK):
                begin = time.monotonic()
                await way.put((begin, self.due(direction, len(data)), data))
            await way.join()
        except OSError:
            pass  # The connection ends, at both ends.
        finally:
            delivery.cancel()

    async def _deliver(self, way, writer):
        """Writes what has arrived, until the reader is gone: then both ways end."""
        with contextlib.suppress(OSError):
            while True:
                begin, due, data = await way.get()
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                writer.write(data)
                self.counts['chunks'] += 1
                self.counts['seconds'] += time.monotonic() - begin
                await writer.drain()
                way.task_done()

    async def _cut(self, mean):
        while True:
            await asyncio.sleep(self._random.expovariate(1 / mean))
            if self._open:
                self._random.choice(list(self._open)).abort()
                self.counts['cuts'] += 1


async def main(pairs):
    ends = [(host, int(port)) for host, port in (x.split(',') for x in pairs)]
    proxy = Proxy()
    for listen, forward in zip(ends[::2], ends[1::2], strict=True):
        await proxy.serve(listen, forward)
    print('ready', flush=True)
    lines = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(lines)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    while line := await lines.readline():
        command, *value = line.decode().split()
        proxy.execute(command, *map(float, value))
        print(json.dumps(proxy.counts), flush=True)


if __name__ == '__main__':
    asyncio.run(main(sys.argv[1:]))
