"""Checks the site that was built: python docs/site/check.py FOLDER

Every link, anchor, picture, script and style leads to something in the folder; none is loaded from elsewhere; each page
of Markdown has the lists, tables and blocks that a forge shows of it.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from markdown_it import MarkdownIt

DOCS = Path(__file__).parents[1]
_BLOCKS = ("li", "table", "tr", "pre", "blockquote", "h2", "h3", "h4", "img")


class Reference(NamedTuple):
    target: str
    is_loaded: bool
    """Whether a browser fetches it by itself."""


class Document(HTMLParser):
    """The anchors, the references and the blocks of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors = {""}
        self.references: list[Reference] = []
        self.blocks: Counter[str] = Counter()
        self._in_article = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors |= {value for name in ("id", "name") if (value := values.get(name))}
        if target := values.get("href"):
            is_loaded = tag == "link" and not {*(values.get("rel") or "").split()} & {
                "canonical",
                "prev",
                "next",
            }
            self.references.append(Reference(target, is_loaded))
        if target := values.get("src"):
            self.references.append(Reference(target, True))
        self._in_article |= tag == "article"
        if self._in_article and tag in _BLOCKS:
            self.blocks[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        self._in_article &= tag != "article"


def main(site: Path) -> int:
    pages = {path: Document(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    problems = [
        f"{path.relative_to(site)}: {problem}"
        for path, page in pages.items()
        for problem in (*broken(path, page, pages), *differences(path.relative_to(site), page))
    ]
    problems += [
        f"{path.relative_to(site)}: loads {url}"
        for path in sorted(site.rglob("*.css"))
        for url in re.findall(r"url\(\s*[\"']?(https?:[^\"')]+)", path.read_text(encoding="utf-8"))
    ]
    count = sum(len(page.references) for page in pages.values())
    size = (site / "search" / "search_index.json").stat().st_size
    print(*problems, f"{len(pages)} pages, {count} links, search index of {size / 1e6:.2f} MB", sep="\n")
    return 1 if problems else 0


def broken(path: Path, page: Document, pages: dict[Path, Document]) -> Iterator[str]:
    """Yield the references of a page that lead to nothing, and those loaded from elsewhere."""
    for target, is_loaded in {*page.references}:
        parts = urlsplit(target)
        if parts.scheme == "data":
            continue
        if parts.scheme or parts.netloc:
            if is_loaded:
                yield f"loads {target}"
            continue
        # A server sends 404.html for any address, so its links begin at the root.
        place = unquote(parts.path).lstrip("/") if path.name == "404.html" else unquote(parts.path)
        file = (path.parent / place).resolve() if place else path
        file = file / "index.html" if file.is_dir() else file
        if not file.is_file():
            yield f"links {target}, which is not in the site"
        elif file in pages and unquote(parts.fragment) not in pages[file].anchors:
            yield f"links {target}, an anchor that is not there"


def differences(name: Path, page: Document) -> Iterator[str]:
    """Yield how a page differs from what a forge shows of its file: the site's dialect of Markdown is another."""
    sources = (DOCS / name.with_suffix(".md"), DOCS / name.with_name("README.md"))
    source = next((path for path in sources if path.is_file()), None)
    if source is None:
        return
    tokens = MarkdownIt().enable("table").parse(source.read_text(encoding="utf-8"))
    expected = Counter(token.tag for token in tokens if token.nesting == 1)
    expected["pre"] = sum(token.type in ("fence", "code_block") for token in tokens)
    expected["img"] = sum(child.type == "image" for token in tokens for child in token.children or ())
    for block in _BLOCKS:
        if page.blocks[block] != expected[block]:
            yield f"has {page.blocks[block]} <{block}>, a forge shows {expected[block]}"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
