"""Looking at runs: the dashboard (`dreamer watch`) and figures (`dreamer plot`).

Reads the folders that runs write and nothing else, so it works on a run that is being
written, on one that crashed, and on a machine without an accelerator.
"""
