"""What any package may use: errors, files, imports, validation, processes, estimates.

Nothing here knows of learning.
"""
