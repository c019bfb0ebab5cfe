"""Timeouts of the replicas of a run, which wait for each other, in whole seconds.

Each comment says what a timeout bounds and, after `>`, what it must exceed.
tests/run/parallel/test_timeouts.py asserts the orders.
"""

REPLICAS_START = 300  # between the starts of the first and the last replica
REPLICA_SILENT = 30  # without a sign of life, a replica of a common update is dead
REPLICAS_END = 30  # between the ends of the first and the last replica
# Between the first and the last replica to ask a clock, one of which may compile;
# > REPLICA_SILENT, which finds a dead one earlier
CLOCK_ASKED = 900
# For the clocks to say who has not asked; > CLOCK_ASKED
CLOCK_ANSWERS = 930
