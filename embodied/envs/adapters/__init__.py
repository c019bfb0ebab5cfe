"""Adapters: environments of other libraries, and users' factories, as ours."""
