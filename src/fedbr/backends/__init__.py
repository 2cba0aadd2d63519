"""Backends carry what the server sends to clients and bring their replies back.

A backend knows no method, no recipe and no result folder, and it decides nothing about training.
"""
