"""Recipes: what to train, on which data.

``schema`` has their keys, ``load`` reads them by name and from files, and ``overrides`` changes
them on the command line. Nothing here trains, or knows of result folders.
"""
