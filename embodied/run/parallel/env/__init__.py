"""The environment workers of a distributed run."""
