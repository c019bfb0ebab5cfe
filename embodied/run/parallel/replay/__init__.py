"""The replay role: buffers behind a rate limiter."""
