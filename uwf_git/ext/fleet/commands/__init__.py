"""`uwf fleet`: many threads stepped by many workers."""
