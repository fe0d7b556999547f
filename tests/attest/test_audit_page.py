"""The audit report as a page: for reading, with nothing that runs, and nobody's words as markup."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

from cli_samples import PAIR, scripted, write
from conftest import Uwf
from evidence import ADA, Evidence

HOSTILE = "<script>alert(1)</script> <img src=x onerror=alert(2)> \\u202e[x](javascript:alert(3))"


class Tags(HTMLParser):
    """All elements of a page and their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes += attrs


def test_a_page_says_who_decided_what_was_shown_and_what_is_not_known(uwf: Uwf, evidence: Evidence) -> None:
    told = uwf("export", evidence.thread, "--audit", "audit.html").json
    page = Path("audit.html").read_text()
    assert (told["file"], told["bytes"], told["findings"], told["signed"]) == (
        "audit.html",
        len(page.encode()),
        0,
        False,  # a page has no signature
    )
    text = re.sub(r"<[^>]*>", " ", page)
    for words in (
        f"Ada Example &lt;{ADA}&gt;", f"signature good by {ADA}, SHA256:", "Merge the total?", "acme-1",
        "10 input, 2 output, 1 cached", "$0.25", "nothing is wrong", "as agents reported them",
        "proves nothing", "shown", evidence.thread,
    ):  # fmt: skip
        assert words in text, words
    assert uwf("export", evidence.thread, "--audit", "-").out.count("<h2>") == page.count("<h2>")


def test_words_of_agents_and_people_are_no_markup(uwf: Uwf) -> None:
    uwf("workflow", "put", write("pair.yaml", PAIR))
    thread = str(uwf("thread", "start", "pair", "-p", json.loads(f'"{HOSTILE}"')).json["thread"])
    uwf("thread", "step", thread, "--agent", scripted(f'- {{role: writer, output: {{text: "{HOSTILE}"}}}}\n'))
    uwf("thread", "say", thread, "-m", json.loads(f'"{HOSTILE}"'))
    page = uwf("export", thread, "--audit", "-").out
    tags = Tags(page)
    assert not tags.names & {"script", "img", "iframe", "object", "embed", "link", "form"}
    assert not [name for name, _ in tags.attributes if name.startswith("on")]
    assert not [
        value
        for name, value in tags.attributes
        if name in ("href", "src") and not (value or "").startswith("#")
    ]
    assert "default-src 'none'" in page and "\u202e" not in page
