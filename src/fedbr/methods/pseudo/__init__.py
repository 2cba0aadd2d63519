"""Pseudo-data: samples that belong to no class. Pure functions."""
