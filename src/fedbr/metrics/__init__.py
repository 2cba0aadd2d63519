"""What is measured, and what each name means."""
