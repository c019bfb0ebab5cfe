"""Trained policies as files that play without this package."""
