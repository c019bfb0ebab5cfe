"""Functional environments: pure functions of JAX, of which a program plays many."""
