"""Whose turn it is: a closed set of rooms with the same hooks. docs/inside/turns.md has the table."""
