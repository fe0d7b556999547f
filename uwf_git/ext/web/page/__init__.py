"""A thread as one HTML file."""
