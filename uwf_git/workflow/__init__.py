"""The workflow language and the moderator: pure."""
