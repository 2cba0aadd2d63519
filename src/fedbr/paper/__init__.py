"""The paper's tables and figures: what they are, how we train them, and ours beside the paper's.

Nothing is trained or judged in a way of its own here: the runner is that of ``fedbr run``, and a
verdict means what it means in a report.
"""
