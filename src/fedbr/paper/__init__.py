"""The paper's tables and figures: what they are, how we train them, and ours beside the paper's."""
