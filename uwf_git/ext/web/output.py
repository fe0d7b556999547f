"""Outputs as they are: in colours, with numbered lines, JSON that folds, and Markdown.

A part of a step or of a failed attempt is shown in pages of lines, newest first to be read without a script, and is
served as lines by range, and as a raw file. Everything is of agents, so nothing of it is trusted.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from uwf_git.plugin import (
    Instance,
    NotFound,
    Page,
    PageRequest,
    Usage,
    UwfError,
    ancestry,
    ansi,
    describe_failure,
    is_kind,
    markup,
    page_addresses,
    parse_attempt,
    parse_detail,
    report_of,
    tag,
)

if TYPE_CHECKING:
    from uwf_git.plugin import Hash, Location

_TITLES = {"raw": "the answer as it came", "error": "what went wrong"}
LINES = 1000
"""Lines of a page, and at most of a range."""

_ROOM = 400_000  # characters of a page's lines
_NUMBERED = 3  # lines from which on they have numbers
_JSON = 200_000  # characters of JSON that folds
_VALUES = 5_000  # of them
_OPEN = 12  # values of JSON that is open
_DEEPEST = 40
_LARGEST = 256 << 20  # bytes of a node that is read
_KEPT = 64 << 20  # characters of texts that are kept for the next range
_LOOKED_BACK = 10_000  # lines in which a colour may begin
_RESET = re.compile(r"(?:\x1b\[|\x9b)0?m")
_FINDS = 10_000  # lines that a search returns
_SEARCHED = 200  # characters


class OutputText:
    """A text by its lines."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = text.split("\n")
        if len(self.lines) > 1 and not self.lines[-1]:
            self.lines.pop()
        self._folded: str | None = None

    def shown(self, first: int, last: int) -> list[str]:
        """Return the HTML of lines, by their numbers from 1."""
        style = self._style_before(first)
        lines = []
        for line in self.lines[first - 1 : last]:
            shown, style = ansi.styled_line(line, style, ansi.LONGEST)
            lines.append(shown)
        return lines

    def _style_before(self, first: int) -> ansi.Style:
        """Return the style that a line begins with: since the last reset, or far enough back."""
        begin = first - 1
        while begin > max(0, first - _LOOKED_BACK) and not _RESET.search(self.lines[begin - 1]):
            begin -= 1
        return ansi.last_style("\n".join(self.lines[max(0, begin - 1) : first - 1]))

    def find(self, words: str) -> list[int]:
        """Return the numbers of the first lines that have some words, not minding case."""
        if self._folded is None:
            self._folded = ansi.plain(self.text).lower()
        text, sought = self._folded, words.lower()
        found: list[int] = []
        number, counted, at = 1, 0, text.find(sought)
        while at >= 0 and len(found) < _FINDS:
            number += text.count("\n", counted, at)
            counted = at
            found.append(number)
            end = text.find("\n", at)
            at = text.find(sought, end) if end >= 0 else -1
        return found


class OutputView(NamedTuple):
    """What a page shows of an output: `html`, its lines `first` to `last` of `total`, 0 if it is shown otherwise; the
    address `at` which it is whole, and that of the `raw` file, "" if there is none."""

    html: Markup
    first: int
    last: int
    total: int
    at: str
    raw: str
    lines: str


def view(text: str, at: str = "", part: str = "", kind: str = "", prefix: str = "") -> OutputView:
    """Show an output. `at` is the address of the step or attempt, and `part` the name of the output there: see
    `read_part`. `kind` is "markdown", "json", "text", or "" for JSON if it is some, else text. The anchors of lines
    begin with the `prefix`."""
    address = f"{at}/{{}}/{quote(part, safe='')}" if at and part else ""
    where = [address.format(name) if address else "" for name in ("output", "raw", "lines")]
    if kind == "markdown" and "\x1b[" not in text:  # a terminal's output is none
        return OutputView(Markup(markup.answer(text)), 0, 0, 0, *where)
    if kind != "text" and (folded := folded_json(text, kind == "json")):
        return OutputView(Markup(folded), 0, 0, 0, *where)
    return _page_of(OutputText(text), where, 0, prefix)


def _page_of(text: OutputText, where: Sequence[str], last: int, prefix: str = "") -> OutputView:
    total = len(text.lines)
    last = min(last, total) if last > 0 else total
    first, room = last, _ROOM
    while first > 1 and last - first + 1 < LINES:
        room -= min(len(text.lines[first - 2]), ansi.LONGEST)
        if room < 0:
            break
        first -= 1
    inside = numbered(text.shown(first, last), first, prefix) if total > 1 else "\n".join(text.shown(1, 1))
    classes = "lines" if total >= _NUMBERED else "lines few"
    html = tag("pre", tag("code", inside), classes, tabindex="0")
    return OutputView(Markup(html), first, last, total, *where)


def numbered(lines: Sequence[str], first: int, prefix: str = "") -> str:
    """Return lines of HTML, each with its number, which a script makes lead to its anchor: as links, they would be a
    thousand stops of the tab key."""
    number_of = '<span data-n="{}" aria-hidden="true"></span>'
    return "".join(
        f'<span class="line" id="{prefix}L{number}">{number_of.format(number)}{line}\n</span>'
        for number, line in enumerate(lines, first)
    )


def folded_json(text: str, is_certain: bool = False) -> str:
    """Return JSON as HTML whose objects and arrays fold, "" if the text is none, or too long or deep."""
    begin = text[:100].lstrip()[:1]
    if len(text) > _JSON or (begin not in ("{", "[") and not is_certain):
        return ""
    try:
        value = json.loads(text)
        if not isinstance(value, dict | list) or not value or _count(value) > _VALUES:
            return ""
        return tag("div", _folded(value, "", 0), "json")
    except (ValueError, RecursionError):
        return ""


def _count(value: Any) -> int:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_count, items))


def _folded(value: Any, name: str, depth: int) -> str:
    label = tag("span", f"{markup.text(name)}: ", "key") if name else ""
    if isinstance(value, dict | list) and value and depth < _DEEPEST:
        begin, end = "{}" if isinstance(value, dict) else "[]"
        items = value.items() if isinstance(value, dict) else (("", item) for item in value)
        count = (
            f"{len(value)} {'key' if isinstance(value, dict) else 'value'}{'' if len(value) == 1 else 's'}"
        )
        inside = "".join(tag("li", _folded(item, str(key), depth + 1)) for key, item in items)
        opened = " open" if depth < 2 and (depth == 0 or len(value) <= _OPEN) else ""
        summary = tag("summary", f"{label}{begin}{tag('span', count, 'meta')}{end}")
        return f"<details{opened}>{summary}{tag('ul', inside)}</details>"
    if isinstance(value, str):
        shown = tag("span", ansi.styled(json.dumps(value, ensure_ascii=False)), "string")
        return label + (tag("pre", ansi.styled(value), "long") if "\n" in value else shown)
    return label + tag("span", markup.text(json.dumps(value, ensure_ascii=False)), "value")


# Parts of steps and attempts


def read_part(instance: Instance, parts: dict[str, Any]) -> str:
    """Return a part of a step or attempt, by the parts of its address: `output`, `answer`, `report`, `raw`, `error`,
    `stdout`, `stderr`, or `turn-N`. Raises NotFound, Usage, StoreDamaged."""
    thread = instance.threads.find(parts["id"])
    head = instance.threads.head(thread)
    name = parts["part"]
    if "node" in parts:
        tip = instance.attempts.tip(thread)
        wanted = parts["node"].upper()
        nodes = [
            row.node for row in (instance.attempts.rows(tip) if tip else ()) if row.node.startswith(wanted)
        ]
        if not nodes:
            raise NotFound(f"thread {thread} has no such attempt", f"see: uwf thread attempts {thread}")
        attempt = parse_attempt(_content(instance, nodes[-1]).payload)
        texts = {"error": attempt.error, "stdout": attempt.stdout, "stderr": attempt.stderr}
        if name in texts:
            return texts[name]
        return _of_detail(instance, attempt.detail, name, None)
    number = parts["number"]
    if not (number.isascii() and number.isdigit() and len(number) < 10):
        raise NotFound(f"thread {thread} has no such step", f"it has {head.row.number}")
    row = next((row for row in ancestry(instance.store, head.commit) if row.number <= int(number)), None)
    if row is None or row.kind != "step" or row.number != int(number):
        raise NotFound(f"thread {thread} has no step {number}", f"it has {head.row.number}")
    step = instance.store.step(row.node)
    if name == "output":
        payload = _content(instance, step.output).payload
        return payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False, indent=2)
    return _of_detail(instance, step.detail, name, step.output)


def _of_detail(instance: Instance, node: Hash | None, name: str, output: Hash | None) -> str:
    content = _content(instance, node) if node is not None else None
    if content is not None and is_kind(content.type, "detail"):
        detail = parse_detail(content.payload)
        if name == "raw" or (name == "answer" and output is None):
            return detail.answer
        if name in ("answer", "report") and output is not None:
            return report_of(_content(instance, output).payload, content)
        match = re.fullmatch(r"turn-([1-9][0-9]{0,6})", name)
        if match and int(match[1]) <= len(detail.turns):
            (turn,) = instance.store.turns(detail._replace(turns=(detail.turns[int(match[1]) - 1],)))
            if turn.result in (None, ""):
                return turn.text
            return (
                turn.result
                if isinstance(turn.result, str)
                else json.dumps(turn.result, ensure_ascii=False, indent=2)
            )
    raise NotFound("there is no such output", "see the page of its step")


def _content(instance: Instance, node: Hash) -> Any:
    size = instance.store.repository.size(instance.store.blob_of(node))
    if size > _LARGEST:
        raise Usage(f"node {node} has {size >> 20} MiB, too much to show here", f"uwf cas get {node}")
    return instance.store.get(node)


class _Texts:
    """The texts that were read last."""

    def __init__(self) -> None:
        self._texts: OrderedDict[tuple[str, ...], OutputText] = OrderedDict()
        self._lock = Lock()

    def read(self, location: Location, parts: dict[str, Any]) -> OutputText:
        """Return a part. The head is in its key, as another step may have its number after a divergence."""
        instance = Instance(location)
        try:
            thread = instance.threads.find(parts["id"])
            head = instance.threads.head(thread)
            key = (str(head.commit), *(f"{name}={value}" for name, value in sorted(parts.items())))
            with self._lock:
                if (text := self._texts.get(key)) is not None:
                    self._texts.move_to_end(key)
                    return text
            text = OutputText(read_part(instance, parts))
        finally:
            instance.store.index.close()
        with self._lock:
            self._texts[key] = text
            while len(self._texts) > 1 and sum(len(kept.text) for kept in self._texts.values()) > _KEPT:
                self._texts.popitem(last=False)
        return text


async def page(location: Location, request: PageRequest, _place: Path | None) -> Page:
    """Show a part by its lines; `to` in the query is the last one. Raises NotFound, Usage, StoreDamaged."""
    parts = dict(request.parts)
    text = await asyncio.to_thread(_TEXTS.read, location, parts)
    thread = parts["id"]
    at = (
        page_addresses.attempt(thread, parts["node"])
        if "node" in parts
        else page_addresses.step(thread, int(parts["number"]))
    )
    where = [f"{at}/{name}/{quote(parts['part'], safe='')}" for name in ("output", "raw", "lines")]
    shown = _page_of(text, where, request.number("to"))
    of = f"Step {parts['number']}" if "number" in parts else "Failed attempt"
    title = f"{of}: {_TITLES.get(parts['part'], parts['part'])}"
    return Page("output_page.html", title, {"view": shown, "back": at, "of": of})


_TEXTS = _Texts()
_PLACES = ("/thread/{id}/step/{number}", "/thread/{id}/attempt/{node}")
PAGES = tuple((f"{place}/output/{{part}}", page) for place in _PLACES)
"""The addresses of outputs, and what makes their pages."""


def routes(location: Location) -> list[Route]:
    """Return the routes of lines and raw files."""

    async def raw(request: Request) -> Response:
        parts = dict(request.path_params)
        text = await asyncio.to_thread(_TEXTS.read, location, parts)
        step = parts.get("number") or parts.get("node", "")
        name = re.sub(r"[^A-Za-z0-9.-]+", "-", f"{parts['id']}-{step}-{parts['part']}")[:120]
        headers = {"content-disposition": f'attachment; filename="{name}.txt"'}
        return PlainTextResponse(text.text.encode("utf-8", "replace"), headers=headers)

    async def lines(request: Request) -> Response:
        text = await asyncio.to_thread(_TEXTS.read, location, dict(request.path_params))
        total = len(text.lines)
        if words := request.query_params.get("find", "")[:_SEARCHED]:
            found = await asyncio.to_thread(text.find, words)
            return JSONResponse({"total": total, "found": found})
        first, last = (_number(request, name) for name in ("from", "to"))
        first = min(max(1, first), total)
        last = min(max(first, last), total, first + LINES - 1)
        shown = await asyncio.to_thread(text.shown, first, last)
        return JSONResponse({"total": total, "first": first, "html": numbered(shown, first)})

    def guarded(show: Callable[[Request], Any]) -> Callable[[Request], Any]:
        async def respond(request: Request) -> Response:
            try:
                response: Response = await show(request)
            except UwfError as error:
                failure = describe_failure(error)
                return PlainTextResponse(
                    f"{failure.message}\n", page_addresses.STATUS.get(failure.status, 500)
                )
            return response

        return respond

    kinds = (("raw", raw), ("lines", lines))
    return [Route(f"{place}/{name}/{{part}}", guarded(show)) for place in _PLACES for name, show in kinds]


def _number(request: Request, name: str) -> int:
    value = request.query_params.get(name, "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else 0
