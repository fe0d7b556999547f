"""The style of single-file pages, also used by `uwf web`."""

from __future__ import annotations

from pathlib import Path

FILE = Path(__file__).parent / "base.css"
STYLE = FILE.read_text(encoding="utf-8").partition("\n")[2]
