"""The checker: plays an environment and names what is wrong with it."""
