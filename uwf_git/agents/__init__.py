"""The agents that ship."""
