"""The logger role: metrics and episodes of all roles."""
