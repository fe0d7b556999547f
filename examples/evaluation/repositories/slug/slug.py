"""Addresses of pages."""


def slug(title: str) -> str:
    """A title as a part of an address."""
    return title.lower().replace(" ", "-")
