"""Storage: steps of many streams in memory-mapped segment files."""
