"""The style of a page that is one file; `uwf web` has the same, and its own on top."""

from __future__ import annotations

from pathlib import Path

FILE = Path(__file__).parent / "base.css"
STYLE = FILE.read_text(encoding="utf-8").partition("\n")[2]
