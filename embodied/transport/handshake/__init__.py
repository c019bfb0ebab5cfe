"""Handshake: what both ends compare and prove before the first call."""
