"""Tools around replay: estimates, inspection and the `dreamer replay` command."""
