"""Results compared and shown: who is ahead, in which words, tables, curves, a page.

``compare`` judges, ``words`` and ``summary`` say it, ``write`` makes the page and ``files`` what a
paper needs.

Nothing is trained here, and nothing is added up: results come from ``run``. No other room judges
who is ahead, or has sentences of its own about it.
"""
