"""Clients as one tensor program: what makes the local step fast, behind one door.

The door is ``Block``: the models of several clients. No method is known here, and what lies behind
the door is named nowhere else in the core.
"""

from .block import Block, Outputs

__all__ = ["Block", "Outputs"]
