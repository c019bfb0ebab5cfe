"""Engines: on which machines the roles of a run start."""
