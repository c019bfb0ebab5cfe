"""The actor: policy calls for all environments of a run."""
