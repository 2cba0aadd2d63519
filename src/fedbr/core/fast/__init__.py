"""Clients as one tensor program: what makes the local step fast, behind one door. No method is
known here.
"""
