"""Vector environments: N members that step together."""
