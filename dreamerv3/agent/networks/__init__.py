"""Networks of the agent."""
