"""Nodes and threads in git: everything under `refs/uwf/` and in the private folder."""
