"""What bench/scores.py is made of: runs, their curves, and what is said of them."""
