"""A page as one HTML file. Its content security policy forbids scripts and loading anything."""

from __future__ import annotations

from uwf_cli.page.markup import tag, text
from uwf_cli.page.style import STYLE

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def document(title: str, content: str) -> str:
    """Return the file. `content` is HTML."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer"><meta name="color-scheme" content="light dark">'
        f"<title>{text(title)}</title><style>{STYLE}</style></head>\n<body>{tag('main', content)}</body></html>\n"
    )
