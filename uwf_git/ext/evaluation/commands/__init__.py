"""`uwf eval`: suites, their runs, and what becomes of these."""
