"""Timeouts of a distributed run that must agree with each other, in seconds.

Each comment says what a timeout bounds and, after `>`, what it must exceed. The options
that belong to these orders are run.grace and run.hang_timeout (settings.py), and the
`grace` and `patience` of connections (transport/interface.py).
tests/run/parallel/test_timeouts.py asserts all orders.
"""

# Signs of life

HEARTBEAT = 1.0  # between two heartbeats of a role
ROLE_SILENT = 10.0  # without a heartbeat, the last one says nothing; > HEARTBEAT
# Behind time, which means that the machine was suspended; > HEARTBEAT, < ROLE_SILENT
SUSPENDED = 5.0
CONTINUES = 5.0  # for a debugger to continue a role that it has stopped; < ROLE_SILENT
ENV_SILENT = 600.0  # without a row, an environment counts as gone; > run.hang_timeout
SAY_WAITING = 5.0  # without an answer, a role prints what it waits for; > HEARTBEAT

# End of an agent process

WORKERS_LEAVE = 5.0  # for environment workers to hear that the run is over
LAST_EPISODES = 5.0  # for the logger to take what the actor has left to send
# For the actor to end before the learner ends the logger;
# > WORKERS_LEAVE + twice the transport's grace (handlers, replies) + LAST_EPISODES
ACTOR_ENDS = 15.0
# For actor or learner to end after the other one has failed;
# > twice the transport's grace + LAST_EPISODES
OTHER_THREAD_ENDS = 10.0
LAST_MESSAGES = 5.0  # for replay, and for the logger, to answer the learner's last call

# Saves and latents

# For replay and logger to save, before the agent saves without them
WRITERS_ANSWER = 10.0
# For the agent to save after another role has failed; > WRITERS_ANSWER
LEAD_SAVES = 20.0
WRITERS_SAVE = 5.0  # for replay and logger to save after that, or at the end of a grace
# For replay to take latents, while training waits;
# > patience of a connection, which is how late a lost replay is noticed
LATENTS_WAIT = 20.0

# Ends of other processes

LAST_OUTPUT = 5.0  # for what a dead process has written to arrive; < run.grace
ENVS_CLOSE = 10.0  # for environments to close before they are left behind; < run.grace
# For a worker to end after a signal, even in the middle of a call; < run.grace
WORKER_EXIT = 5.0
