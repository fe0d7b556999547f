"""A thread as one HTML file, to mail and to keep."""
