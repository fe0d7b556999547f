"""`uwf fleet`."""
