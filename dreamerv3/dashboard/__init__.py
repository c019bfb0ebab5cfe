"""Looking at runs: the dashboard (`dreamer watch`) and figures (`dreamer plot`).

Reads the folders that runs write, so it works on a run that is being written, on one
that crashed, and on a machine without an accelerator. What users say about a run is all
that it writes (`runs/labels.py`).
"""
