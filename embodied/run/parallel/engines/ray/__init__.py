"""Ray as the engine of a run: nodes for roles, addresses found at run time."""
