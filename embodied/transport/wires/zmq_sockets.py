"""ZeroMQ sockets: the options that both ends share, whole messages, and events."""

import math
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from ..codec.frames import MAX_HEAD, MAX_PLACES
from ..codec.schemas import LARGE
from ..interface import Settings

__all__ = [
    'configure',
    'descriptor',
    'milliseconds',
    'next_event',
    'readable',
    'receive',
    'receive_first',
    'send',
]

# As plain numbers: the enums of pyzmq cost a microsecond per operation.
EVENTS, RCVMORE = int(zmq.EVENTS), int(zmq.RCVMORE)
POLLIN, DONTWAIT = int(zmq.POLLIN), int(zmq.DONTWAIT)
DONTWAIT_MORE = int(zmq.DONTWAIT | zmq.SNDMORE)


def configure(sock: zmq.Socket, settings: Settings) -> None:
    """Sets the options common to both ends; before bind or connect."""
    sock.set(zmq.MAXMSGSIZE, settings.max_message + MAX_HEAD)
    sock.set(zmq.HEARTBEAT_IVL, milliseconds(settings.heartbeat))
    sock.set(zmq.HEARTBEAT_TIMEOUT, milliseconds(settings.patience))
    sock.set(zmq.HEARTBEAT_TTL, milliseconds(settings.patience))
    sock.set(zmq.HANDSHAKE_IVL, milliseconds(settings.patience))
    sock.set(zmq.LINGER, milliseconds(settings.grace))
    sock.set(zmq.IPV6, 1)
    # ZeroMQ bounds messages, we bound bytes: of requests by maxinflight, of replies
    # by trackers.
    sock.set(zmq.SNDHWM, 0)
    sock.copy_threshold = 0
    if sock.type == zmq.ROUTER:
        sock.set(zmq.ROUTER_MANDATORY, 1)
    else:
        # IMMEDIATE stays off: with it, replies that came right before the connection
        # ended are lost.
        sock.set(zmq.RCVHWM, 0)


def milliseconds(seconds: float) -> int:
    """Rounded up, so that nothing is due when a wait for it is over."""
    return max(0, math.ceil(1000 * seconds))


def readable(sock: zmq.Socket) -> bool:
    """Whether a whole message has arrived; clears the signal of the descriptor."""
    return bool(int(sock.get(EVENTS)) & POLLIN)


def descriptor(sock: zmq.Socket) -> int:
    """A descriptor that becomes readable when something happens to the socket."""
    return int(sock.get(zmq.FD))


def send(sock: zmq.Socket, frames: list, track: bool = False) -> Any:
    """Sends a whole message without blocking; zmq.ZMQError when it cannot.

    Large frames are not copied. With `track`, returns the tracker of the last frame,
    which is done when the whole message and all before it left this process.
    """
    *others, last = frames
    for frame in others:
        copy = len(frame) < LARGE
        sock.send(frame, DONTWAIT_MORE, copy=copy)
    copy = len(last) < LARGE and not track
    return sock.send(last, DONTWAIT, copy=copy, track=track)


def receive(sock: zmq.Socket, head: int) -> list:
    """One whole message that is known to have arrived.

    The first `head` frames become bytes, which are aligned and small; the others stay
    where ZeroMQ put them.
    """
    frames: list = [sock.recv(DONTWAIT) for _ in range(head)]
    while sock.get(RCVMORE):
        frame = sock.recv(DONTWAIT, copy=False)
        if len(frames) <= MAX_PLACES + head:
            frames.append(frame.buffer)
    return frames


def receive_first(sock: zmq.Socket) -> tuple[int, list]:
    """The rest of a message behind its route, and the descriptor it came through."""
    head = sock.recv(DONTWAIT, copy=False)
    return head.get(zmq.SRCFD), [head.bytes, *receive(sock, head=0)]


def next_event(monitor: zmq.Socket) -> tuple[int, str, int] | None:
    """The next event of a monitor, if there is one: what it is, the endpoint it is
    about, and its value, which is a descriptor if it is about a connection."""
    try:
        event = recv_monitor_message(monitor, DONTWAIT)
    except zmq.Again:
        return None
    endpoint = event['endpoint'].decode(errors='replace')
    return event['event'], endpoint, event['value']
