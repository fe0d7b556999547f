"""Command-line agent programs, one table row each: how to call them, and how to read their output."""
