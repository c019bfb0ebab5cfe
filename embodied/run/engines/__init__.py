"""Engines beyond this machine: Ray, SLURM and Kubernetes.

Nothing of them is imported before it is used.
"""
