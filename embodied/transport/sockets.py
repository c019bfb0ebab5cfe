"""ZeroMQ sockets as we use them: options, whole messages, events of connections."""

from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from .interface import Settings
from .messages import LARGE
from .wire import MAX_PLACES

__all__ = [
    'configure',
    'descriptor',
    'next_event',
    'readable',
    'receive',
    'send',
    'writable',
]

RECONNECT_FIRST = 20  # milliseconds
RECONNECT_LAST = 500
MAX_UNSENT = 1000  # messages to one peer that does not read


def configure(sock: zmq.Socket, settings: Settings) -> None:
    """Options common to both ends; to be set before bind or connect."""
    milliseconds = lambda seconds: max(1, int(1000 * seconds))
    sock.set(zmq.MAXMSGSIZE, settings.max_message)
    sock.set(zmq.HEARTBEAT_IVL, milliseconds(settings.heartbeat))
    sock.set(zmq.HEARTBEAT_TIMEOUT, milliseconds(settings.patience))
    sock.set(zmq.HEARTBEAT_TTL, milliseconds(settings.patience))
    sock.set(zmq.HANDSHAKE_IVL, milliseconds(settings.patience))
    sock.set(zmq.RECONNECT_IVL, RECONNECT_FIRST)
    sock.set(zmq.RECONNECT_IVL_MAX, RECONNECT_LAST)
    sock.set(zmq.LINGER, milliseconds(settings.grace))
    sock.set(zmq.IPV6, 1)
    if sock.type == zmq.ROUTER:
        sock.set(zmq.ROUTER_MANDATORY, 1)
        sock.set(zmq.SNDHWM, MAX_UNSENT)
    else:
        # Requests wait with us, not in a queue of a connection that may be gone;
        # their number is bounded by maxinflight.
        sock.set(zmq.IMMEDIATE, 1)
        sock.set(zmq.SNDHWM, 0)
        sock.set(zmq.RCVHWM, 0)


def readable(sock: zmq.Socket) -> bool:
    """Whether a whole message has arrived; also takes note of all that happened."""
    return bool(int(sock.get(zmq.EVENTS)) & zmq.POLLIN)


def writable(sock: zmq.Socket) -> bool:
    """Whether a message can be sent now."""
    return bool(int(sock.get(zmq.EVENTS)) & zmq.POLLOUT)


def descriptor(sock: zmq.Socket) -> int:
    """Becomes readable once something happened that nobody took note of yet."""
    return int(sock.get(zmq.FD))


def send(sock: zmq.Socket, frames: list, track: bool = False) -> Any:
    """Sends a whole message without blocking; zmq.ZMQError when it cannot.

    Large frames are not copied. With `track`, returns their trackers.
    """
    trackers = []
    last = len(frames) - 1
    for index, frame in enumerate(frames):
        flags = zmq.DONTWAIT | (zmq.SNDMORE if index < last else 0)
        if len(frame) < LARGE:
            sock.send(frame, flags)
        else:
            tracker = sock.send(frame, flags, copy=False, track=track)
            if track:
                trackers.append((len(frame), tracker))
    return trackers


def receive(sock: zmq.Socket, head: int) -> list:
    """One whole message that is known to have arrived.

    The first `head` frames become bytes, which are aligned and small; the others stay
    where ZeroMQ put them.
    """
    frames: list = []
    while True:
        if len(frames) < head:
            frames.append(sock.recv(zmq.DONTWAIT))
        else:
            frame = sock.recv(zmq.DONTWAIT, copy=False)
            if len(frames) <= MAX_PLACES + head:
                frames.append(frame.buffer)
        if not sock.get(zmq.RCVMORE):
            return frames


def next_event(monitor: zmq.Socket) -> tuple[int, str] | None:
    """The next event of a monitor and the endpoint it is about, if there is one."""
    try:
        event = recv_monitor_message(monitor, zmq.DONTWAIT)
    except zmq.Again:
        return None
    return event['event'], event['endpoint'].decode(errors='replace')
