"""What is kept of a run, and what is made of it."""
