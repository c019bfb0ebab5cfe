"""Figures and tables of many runs."""
