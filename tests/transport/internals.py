"""What tests look up inside of servers and clients of ours."""


def clients(server):
    """How many clients are connected."""
    sessions = server._requests._sessions._sessions.values()
    return sum(session.connection is not None for session in sessions)


def stored_replies(server):
    sessions = server._requests._sessions._sessions.values()
    return sum(len(session.stored) for session in sessions)


def pool_of(server):
    return server._requests.pool


def slabs_of(pool):
    """How many slabs of shared memory there are, how many in use, and their bytes."""
    with pool._lock:
        pool._collect()
        slabs = list(pool._slabs.values())
    return {
        'slabs': len(slabs),
        'used': sum(slab.holders.total() > 0 for slab in slabs),
        'bytes': sum(slab.size for slab in slabs),
    }


def queued_bytes(server):
    return server._requests._queued_bytes


def disconnect(client):
    """Ends the connection of a client as a network would; it will come back."""
    with client._reader.lock:
        client._reader.connection.disconnect()
    client._keeper.wake()
