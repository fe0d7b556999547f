"""HTML without scripts: markup, style, single-file pages."""
