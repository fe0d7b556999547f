"""A web page as text: headings, paragraphs, lists, links and code; no scripts, no styles."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from urllib.parse import urljoin

_SKIPPED = frozenset(("script", "style", "noscript", "template", "svg", "head", "iframe", "object"))
_BLOCKS = re.compile(
    "address|article|aside|blockquote|dd|div|dl|dt|fieldset|figcaption|figure|footer|form|header|hr|li|main|"
    "nav|ol|p|pre|section|table|tr|ul|h[1-6]"
)
_DEEPEST = 1000  # elements whose text is left out, within each other


def page_text(html: str, address: str) -> tuple[str, str]:
    """The title and the text of a page; links are made whole by its address."""
    reader = _Reader(address)
    reader.feed(html)
    reader.close()
    text = re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+\n", "\n", "".join(reader.parts)))
    return " ".join("".join(reader.title).split())[:500], text.strip()


class _Reader(HTMLParser):
    def __init__(self, address: str) -> None:
        super().__init__(convert_charrefs=True)
        self._address = address
        self.parts: list[str] = []
        self.title: list[str] = []
        self._in_title = False
        self._skipped: list[str] = []
        self._in_pre = 0
        self._links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "title":
            self._in_title = True
        elif tag == "body":
            self._skipped.clear()  # a head that was never closed
            self._in_title = False
        elif tag in _SKIPPED:
            if len(self._skipped) < _DEEPEST:
                self._skipped.append(tag)
        elif not self._skipped:
            self._begin(tag, dict(attrs))

    def _begin(self, tag: str, attributes: dict[str, str | None]) -> None:
        if _BLOCKS.fullmatch(tag):
            self.parts.append("\n\n" if tag[0] in "ph" or tag == "table" else "\n")
        if tag == "br":
            self.parts.append("\n")
        elif tag == "li":
            self.parts.append("- ")
        elif tag in ("td", "th"):
            self.parts.append(" | ")
        elif tag == "pre":
            self._in_pre += 1
            self.parts.append("```\n")
        elif re.fullmatch("h[1-6]", tag):
            self.parts.append("#" * int(tag[1]) + " ")
        elif tag == "a":
            self._links.append(self._link(attributes.get("href") or ""))
            if self._links[-1]:
                self.parts.append("[")
        elif tag == "img" and attributes.get("alt"):
            self.parts.append(f"[image: {attributes['alt']}]")

    def _link(self, target: str) -> str:
        if not target or target.startswith("#"):
            return ""
        try:
            whole = urljoin(self._address, target)
        except ValueError:
            return ""
        return whole if whole.startswith(("http://", "https://")) and len(whole) < 500 else ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        elif tag in _SKIPPED:
            if tag in self._skipped:
                del self._skipped[self._skipped.index(tag) :]
        elif not self._skipped:
            self._end(tag)

    def _end(self, tag: str) -> None:
        if tag == "a" and self._links:
            link = self._links.pop()
            if link:
                self.parts.append(f"]({link})")
        elif tag == "pre" and self._in_pre:
            self._in_pre -= 1
            self.parts.append("\n```\n")
        elif _BLOCKS.fullmatch(tag):
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title.append(data)
        elif self._skipped:
            return
        elif self._in_pre:
            self.parts.append(data)
        else:
            flowing = re.sub(r"\s+", " ", data)
            at_begin = not self.parts or self.parts[-1].endswith("\n")
            self.parts.append(flowing.lstrip() if at_begin else flowing)
