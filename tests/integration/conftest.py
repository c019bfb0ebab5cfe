"""Tests in the folders below import the helpers that lie beside this file."""
