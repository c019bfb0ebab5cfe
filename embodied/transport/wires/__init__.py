"""Wires: Unix sockets within a host, ZeroMQ between hosts."""
