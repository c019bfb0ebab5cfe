"""Commands of `dreamer`, one module each."""
