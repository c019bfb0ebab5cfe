"""Makes the environments of this folder importable in the folders below."""
