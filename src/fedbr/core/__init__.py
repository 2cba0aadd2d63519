"""The runtime: what travels, who draws, the client axis, one local step. Imports nothing else of
the package.
"""
