"""Backends carry tasks to clients and bring their replies back. They know no method."""
