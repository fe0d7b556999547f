"""Errors and exit statuses, text, log, time limits, process lifetime. Imports nothing above it."""
