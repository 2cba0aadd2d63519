"""The runtime: what travels, who draws, the client axis, the local step, the round.

It imports no room but util, and knows no method, no recipe and no file of a run by name.
"""
