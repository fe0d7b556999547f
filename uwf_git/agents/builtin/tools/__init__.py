"""The tools of the built-in agent: what they are, what they may touch, what they answer."""
