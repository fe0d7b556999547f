"""Texts, Markdown and values as safe HTML: everything is escaped, HTML in Markdown is text, remote pictures
are links, and links are web or mail addresses only."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uwf_cli.page import ansi
from uwf_cli.terminal import escape, escape_code
from uwf_git.base.text import cut, without_colours

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

STYLE_FILE = Path(__file__).parent / "base.css"
"""The style of single-file pages, also used by `uwf web`."""
LONGEST = 20_000  # characters of one tool's result, or one turn
_LEADS_OUT = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)
_FIELDS = re.compile(
    r"\s*---[ \t]*\r?\n(?=[\w$.\"'-]+[ ]*:(?:\s|$))(.*?)\r?\n(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_DEEPEST = 5  # nesting of tables; deeper values are JSON
_room: ContextVar[list[int] | None] = ContextVar("room", default=None)


def text(value: object) -> str:
    """Escape a text, writing out control and direction characters."""
    return html.escape(escape(str(value)))


def tag(name: str, inside: str, classes: str = "", **attributes: str) -> str:
    """Return an element; `inside` is HTML, attributes are escaped, and left out if empty."""
    given = {
        "class": classes,
        **{key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()},
    }
    shown = "".join(f' {key}="{html.escape(value)}"' for key, value in given.items() if value)
    return f"<{name}{shown}>{inside}</{name}>"


def document(title: str, content: str) -> str:
    """Return a page as one HTML file, whose policy forbids scripts and loading anything. `content` is HTML."""
    style = STYLE_FILE.read_text(encoding="utf-8").partition("\n")[2]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer"><meta name="color-scheme" content="light dark">'
        f"<title>{text(title)}</title><style>{style}</style></head>\n<body>{tag('main', content)}</body></html>\n"
    )


def pre(content: str, language: str = "") -> str:
    """Return monospaced text, shortened if very long."""
    return lines(cut(content, LONGEST), language)


def verbatim(content: str) -> str:
    """Return monospaced text that somebody decides on: every character that hides or moves others is written out."""
    return tag("pre", tag("code", html.escape(escape_code(cut(content, LONGEST)))), "verbatim", tabindex="0")


def lines(content: str, language: str = "") -> str:
    return tag("pre", tag("code", ansi.styled(content)), language, tabindex="0")


def fold(title: str, inside: str, classes: str = "") -> str:
    """Return a collapsible section; the title is HTML."""
    return tag("details", tag("summary", title) + inside, classes)


def table(header: Sequence[str], rows: Iterable[Sequence[str]], classes: str = "") -> str:
    """Return a table of HTML cells."""
    head = tag("thead", tag("tr", "".join(tag("th", cell, scope="col") for cell in header))) if header else ""
    body = "".join(tag("tr", "".join(tag("td", cell) for cell in row)) for row in rows)
    return tag("div", tag("table", head + tag("tbody", body), classes), "scrolls", tabindex="0")


def value(content: Any, depth: int = 0) -> str:
    """Return a JSON value as a table, list or text."""
    if content is None or isinstance(content, bool):
        shown = {True: "yes", False: "no", None: "none"}[content]
        return tag("span", shown, f"is-{shown}")
    if isinstance(content, str):
        return _paragraphs(content)
    if isinstance(content, int | float):
        return text(json.dumps(content))
    if not content:
        return tag("span", "none", "is-none")
    if depth >= _DEEPEST:
        return pre(json.dumps(content, ensure_ascii=False, indent=2))
    if isinstance(content, Mapping):
        rows = "".join(
            tag("tr", tag("th", text(key), scope="row") + tag("td", value(item, depth + 1)))
            for key, item in content.items()
        )
        inside = tag("table", tag("tbody", rows), "values")
        return inside if depth else tag("div", inside, "scrolls", tabindex="0")
    return tag("ul", "".join(tag("li", value(item, depth + 1)) for item in content))


def bounded(content: Any, room: int = LONGEST) -> str:
    """As `value`, with very long or nested values as shortened text."""
    try:
        text = json.dumps(content, ensure_ascii=False, indent=2)
        return value(content) if len(text) <= room else lines(cut(text, room))
    except RecursionError:
        return tag("p", "It is nested too deeply to show here.", "meta")


def _paragraphs(content: str) -> str:
    content = without_colours(content)
    return tag("div", text(content.strip("\n")), "as-is") if "\n" in content else text(content)


@contextmanager
def room_for_markdown(characters: int) -> Iterator[None]:
    """Limit the Markdown rendered in the block, in characters; the rest is shown as text."""
    token = _room.set([characters])
    try:
        yield
    finally:
        _room.reset(token)


def _has_room(source: str) -> bool:
    room = _room.get()
    if room is None:
        return True
    room[0] -= len(source)
    return room[0] >= 0


def _cells(source: str) -> int:
    blocks = (block.split("\n") for block in re.split(r"\n\s*\n", source) if "|" in block)
    return sum(len(lines) * max(line.count("|") for line in lines) for lines in blocks)


def markdown(source: str, below: int = 3, breaks: bool = False) -> str:
    """Render Markdown with headings below a level, the highest just below it. `breaks` keeps line breaks, as in
    prompts. Tables with far more cells than characters stay text."""
    if not _has_room(source):
        return tag("div", lines(source), "prose")
    parser = _parser(breaks, _cells(source) <= len(source) + 1000)
    tokens = parser.parse(escape(source))
    headings = [token for token in tokens if token.type in ("heading_open", "heading_close")]
    least = min((int(token.tag[1]) for token in headings), default=1)
    for token in headings:
        token.tag = f"h{min(6, int(token.tag[1]) - least + 1 + below)}"
    return tag("div", parser.renderer.render(tokens, parser.options, {}), "prose")


def answer(source: str) -> str:
    """Render an agent's answer; its field block is shown as written, since Markdown would make it a heading."""
    source = without_colours(source)
    match = _FIELDS.match(source)
    if match is None:
        return markdown(source)
    return pre(match[1], "yaml") + (markdown(rest) if (rest := source[match.end() :]).strip() else "")


@cache
def _parser(breaks: bool, tables: bool) -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "breaks": breaks}).enable("strikethrough")
    if tables:
        parser.enable("table")
    renderer: Any = parser.renderer
    rules = renderer.rules
    rules["image"] = _image
    rules["link_open"] = _link_open
    rules["link_close"] = _link_close
    rules["fence"] = rules["code_block"] = _code
    rules["table_open"] = lambda *_: '<div class="scrolls" tabindex="0"><table>'
    rules["table_close"] = lambda *_: "</table></div>"
    return parser


def _image(tokens: Sequence[Token], at: int, *_: Any) -> str:
    token = tokens[at]
    source = str(token.attrs.get("src", ""))
    what = token.content or "picture"
    if source.startswith("data:image/"):  # of these the parser lets only pictures through
        return f'<img src="{html.escape(source)}" alt="{html.escape(what)}">'
    return _link(source, f"picture: {html.escape(what)}")


def _link_open(tokens: Sequence[Token], at: int, *_: Any) -> str:
    target = str(tokens[at].attrs.get("href", ""))
    return (
        f'<a href="{html.escape(target)}" rel="noreferrer noopener">'
        if _LEADS_OUT.match(target)
        else "<span>"
    )


def _link_close(tokens: Sequence[Token], at: int, *_: Any) -> str:
    opened = at - 1
    depth = 1
    while opened > 0:
        depth += {"link_close": 1, "link_open": -1}.get(tokens[opened].type, 0)
        if not depth:
            break
        opened -= 1
    target = str(tokens[opened].attrs.get("href", ""))
    text = "".join(token.content for token in tokens[opened + 1 : at])
    # An address that differs from its text has to be seen.
    shown = "" if text.strip() == target.removeprefix("mailto:") else f" {_address(target)}"
    return ("</a>" if _LEADS_OUT.match(target) else "</span>") + shown


def _link(target: str, inside: str) -> str:
    if not _LEADS_OUT.match(target):
        return f"<span>{inside}</span> {_address(target)}"
    return f'<a href="{html.escape(target)}" rel="noreferrer noopener">{inside}</a> {_address(target)}'


def _address(target: str) -> str:
    return tag("span", f"({html.escape(target)})", "address")


def _code(tokens: Sequence[Token], at: int, *_: Any) -> str:
    return f'<pre tabindex="0"><code>{html.escape(tokens[at].content)}</code></pre>\n'
