"""What is made of results: who is ahead (compare), in which words (words), tables, curves, a page,
and files for papers.

Nothing is trained here, and nothing is added up: results come from ``run``. No other room judges
who is ahead, or has sentences of its own about it.
"""
