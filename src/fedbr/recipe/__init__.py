"""What to train on what: the recipe's keys (schema), recipes by name and from files (load), and
changes to them on the command line (overrides).

A recipe is checked here, and not trained. Nothing here knows of result folders.
"""
