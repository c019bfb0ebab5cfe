"""Codec: values as frames without pickle, and large arrays in shared memory."""
