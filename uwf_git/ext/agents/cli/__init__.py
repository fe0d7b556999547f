"""Command-line agents, one row of a table each: how to call them, and where in what they print things are."""
