"""Series: metrics of runs as decimated curves."""
