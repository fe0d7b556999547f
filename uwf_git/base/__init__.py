"""Errors and their exit statuses, text, the log, time limits, how a process ends: imports nothing above it."""
