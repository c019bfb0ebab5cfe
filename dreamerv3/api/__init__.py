"""The Python interface: train, load, act, bundles."""
