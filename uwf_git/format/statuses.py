"""The reserved statuses: those by which an output asks a person, and that of an edge for all others."""

from __future__ import annotations

SUSPEND = "$SUSPEND"
"""The status of an output that asks a person."""
NEEDS_INPUT = "needs_input"
STATUS = ("$status", "status")
"""The names of a status, in whatever schema."""
DEFAULT_STATUS = "_"
