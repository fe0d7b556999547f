"""How the page of a thread looks; `uwf web` has the same style, and its own on top."""

from __future__ import annotations

from pathlib import Path

FILE = Path(__file__).parent / "base.css"
STYLE = FILE.read_text(encoding="utf-8").partition("\n")[2]
