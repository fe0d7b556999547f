"""HTML that nothing runs in: markup, the style of all pages, a page as one file."""
