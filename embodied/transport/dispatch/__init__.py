"""Dispatch: methods, their worker threads and batches of requests."""
