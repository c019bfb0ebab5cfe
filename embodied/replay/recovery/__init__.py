"""Recovery: folders that reopen after a crash, power loss or damage."""
