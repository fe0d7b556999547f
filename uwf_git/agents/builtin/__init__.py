"""The built-in agent's own parts: its conversation, its loop, and what it works in."""
