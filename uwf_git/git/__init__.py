"""A git repository, and the git program."""
