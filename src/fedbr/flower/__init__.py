"""The same experiment on a real federation: all that knows of Flower, its nodes and programs.

No method, metric or rule of training lives here: sites and server use the same code as
``fedbr run``.
"""
