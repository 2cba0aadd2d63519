"""Clients as one tensor program: what makes the local step fast.

The local step uses ``Block`` only, the models of several clients. Nothing here knows a method.
"""

from .block import Block, Outputs

__all__ = ["Block", "Outputs"]
