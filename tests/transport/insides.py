"""What tests look up inside of a server of ours."""


def clients(server):
    """How many are connected."""
    return len(server._exchange.peers)


def slabs_of(server):
    """Its shared memory: `slabs`, `slabs_used`, `slab_bytes`."""
    return server._exchange.pool.stats()


def queued_bytes(server):
    return server._exchange._queued_bytes
