"""`uwf eval`."""
