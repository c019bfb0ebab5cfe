"""The stock portal library behind the same interface."""
