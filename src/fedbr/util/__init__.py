"""What any room may use and what knows nothing of learning: errors, files, imports, validation,
processes.
"""
