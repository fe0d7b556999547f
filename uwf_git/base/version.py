"""The version of uwf."""

VERSION = "0.2.0"
"""The version of uwf-git."""
