"""`uwf web --export DIR`: pages as static files without scripts.

Pages are found by following links from the lists. `link` maps addresses to portable file names, so no name
can lead out of the folder.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from starlette.routing import compile_path

from uwf_git.ext.web import assets, render, stats, threads
from uwf_git.ext.web.site import PAGES, Maker, Site, failed, sections
from uwf_git.plugin import (
    DamagedThread,
    Hash,
    Head,
    History,
    IndexedStore,
    Instance,
    Invalid,
    Page,
    PageRequest,
    PastStep,
    ThreadId,
    Threads,
    parent_threads,
)

MARKER = "uwf-pages.txt"
_BEGINS = (
    "# The pages of a uwf store, written by uwf web --export. These files are replaced by the next one:\n"
)
_LISTS = ("/", "/workflows", "/stats")
_ABSENT = "absent.html"
_LOADED = ("base.css", "web.css", "output.css", "workbench.css", "pages.css", "icon.svg")
_PLAIN = re.compile(r"[a-z0-9][a-z0-9-]{0,60}|[0-9A-Z]{13}|[0-9A-Z]{26}")
_DOUBTFUL = re.compile(r"[0-9a-z]{13}|[0-9a-z]{26}|con|prn|aux|nul|com\d|lpt\d")
_ROUTES = tuple(
    (compile_path(path)[0], threads.page if path == "/" else maker)
    for path, maker in PAGES
    if path != "/diff"
)

Query = Sequence[tuple[str, str]]


class ExportCounts(NamedTuple):
    """Numbers of files and bytes; threads whose next role wasn't decided."""

    files: int
    bytes: int
    unjudged: tuple[ThreadId, ...] = ()


def export(
    site: Site, folder: Path, thread: ThreadId | None, tell: Callable[[int, int], None] = lambda *_: None
) -> ExportCounts:
    """Write the pages of a store, or of a thread with its sub-workflows, to a new, empty or earlier export's
    folder. `tell` gets progress. Raises Invalid."""
    before = _earlier(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder, MARKER, (_BEGINS + "".join(f"{name}\n" for name in before)).encode())
        with site.opened() as instance:
            instance.threads = _Unmoved(instance.store)
            instance.threads.place = site.place
            written = _Pages(site, instance, folder, thread).write(tell)
        for name in before:
            if name not in written:
                _place(folder, name).unlink(missing_ok=True)
        _write(folder, MARKER, (_BEGINS + "".join(f"{name}\n" for name in sorted(written))).encode())
    except OSError as error:
        raise Invalid(f"cannot write {folder}: {error.strerror}", "name another folder") from None
    return ExportCounts(len(written), sum(written.values()), tuple(instance.judging.threads))


def _earlier(folder: Path) -> list[str]:
    try:
        if not folder.is_symlink() and not folder.exists():
            return []
        if folder.is_dir() and not any(folder.iterdir()):
            return []
        first, *names = (folder / MARKER).read_text(encoding="utf-8").splitlines()
        if f"{first}\n" == _BEGINS:
            return [
                name for name in names if re.fullmatch(r"[\w.-]+(?:/[\w.-]+)*", name) and ".." not in name
            ]
    except (OSError, ValueError):
        pass
    raise Invalid(
        f"{folder} already exists and is not an earlier export", "name a folder that is new or empty"
    )


def _place(folder: Path, name: str) -> Path:
    path = folder
    for part in name.split("/"):
        path = path / part
        if path.is_symlink():
            raise Invalid(f"{path} is a link, which no export makes", "name a folder that is new or empty")
    return path


def _write(folder: Path, name: str, data: bytes) -> int:
    path = _place(folder, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return len(data)


class _Unmoved(Threads):
    """Threads as first read, so that all pages agree."""

    def __init__(self, store: IndexedStore) -> None:
        super().__init__(store)
        self._all: dict[bool, list[Head | DamagedThread]] = {}
        self._heads: dict[ThreadId, Head] = {}
        self._past: dict[Hash, PastStep] = {}
        self._longest: History | None = None

    def head(self, thread: ThreadId) -> Head:
        if thread not in self._heads:
            self._heads[thread] = super().head(thread)
        return self._heads[thread]

    def all(self, archived: bool = False) -> list[Head | DamagedThread]:
        if archived not in self._all:
            self._all[archived] = super().all(archived)
        return self._all[archived]

    def past(self, node: Hash) -> Iterator[PastStep]:
        previous: Hash | None = None
        at: Hash | None = node
        while at is not None and (known := self._past.get(at)) is not None:
            yield known
            previous, at = at, known.step.prev
        for step in super().past(previous or node) if at is not None else ():
            if step.hash != previous:
                self._past[step.hash] = step
                yield step

    def history_at(self, thread: ThreadId, node: Hash) -> History:
        longest = self._longest
        if longest is not None and longest.thread == thread:
            for number in range(len(longest.steps), 0, -1):
                if longest.steps[number - 1].hash == node:
                    return longest._replace(head=node, steps=longest.steps[:number])
        history = super().history_at(thread, node)
        if longest is None or longest.thread != thread or len(history.steps) > len(longest.steps):
            self._longest = history
        return history


class _Pages:
    """The pages of an export. `_names` maps known addresses to files, `_left` are unwritten."""

    def __init__(self, site: Site, instance: Instance, folder: Path, thread: ThreadId | None) -> None:
        self._site, self._instance, self._folder = site, instance, folder
        self._chosen = None if thread is None else _with_children(instance, thread)
        self._base = [("thread", item) for item in sorted(self._chosen or ())]
        self._known = {**site.known(), "live": False, "write": False, "run": False, "tag": ""}
        self._shown = {"sections": sections(instance) if thread is None else []}
        self._names: dict[str, str] = {}
        self._left: list[tuple[str, Maker, PageRequest]] = []
        self._written: dict[str, int] = {}

    def write(self, tell: Callable[[int, int], None]) -> dict[str, int]:
        for name in _LOADED:
            self._put(f"static/{name}", assets.files()[name].read_bytes())
        for address in _LISTS:
            self._file(address)
        while self._left:
            tell(len(self._written), len(self._written) + len(self._left))
            name, maker, request = self._left.pop()
            self._put(name, self._html(name, self._page(maker, request)))
        if _ABSENT in self._names.values():
            page = Page("absent.html", "Not in this export", {})
            self._put(_ABSENT, self._html(_ABSENT, page))
        return self._written

    def _put(self, name: str, data: bytes) -> None:
        self._written[name] = _write(self._folder, name, data)

    def _page(self, maker: Maker, request: PageRequest) -> Page:
        try:
            return maker(self._instance, request)
        except Exception as error:
            return failed(error, "It cannot be shown")

    def _html(self, name: str, page: Page) -> bytes:
        def link(address: str) -> str:
            path, _, place = address.partition("#")
            file = self._file(path)
            relative = posixpath.relpath(file, posixpath.dirname(name) or ".") if file else ""
            return relative + (f"#{place}" if place or not file else "")

        page = page._replace(values={**self._shown, **page.values})
        try:
            document = render.html(page, link, self._known)
        except Exception as error:
            document = render.html(failed(error, "It cannot be shown"), link, self._known)
        return document.encode("utf-8", "replace")

    def _file(self, address: str) -> str:
        parts = urlsplit(address)
        place = "/" if parts.path == "/threads" else parts.path  # there is no inbox
        path, query = unquote(place), self._query(place, parse_qsl(parts.query))
        key = f"{place}?{urlencode(query)}"
        if key in self._names:
            return self._names[key]
        if path.startswith("/static/"):
            return path[1:]
        for pattern, maker in _ROUTES:
            if (match := pattern.fullmatch(path)) is None:
                continue
            named = match.groupdict()
            if self._chosen is not None and any(
                named[part] not in self._chosen for part in ("id", "a", "b") if part in named
            ):
                self._names[key] = _ABSENT
            else:
                self._names[key] = name = _name(
                    path, [item for item in query if item not in self._fixed(path)]
                )
                self._left.append((name, maker, PageRequest(named, query)))
            return self._names[key]
        return ""

    def _query(self, path: str, query: Query) -> list[tuple[str, str]]:
        return sorted({*query, *self._fixed(path)})

    def _fixed(self, path: str) -> list[tuple[str, str]]:
        bound = self._base if path in _LISTS or path.startswith("/workflow/") else []
        has_tabs = path.startswith(("/thread/", "/workflow/"))
        whole = [("tab", "all")] if has_tabs else []  # tabs are one page
        return [*bound, *whole, *([("since", stats.EVER)] if path == "/stats" else [])]


def _with_children(instance: Instance, thread: ThreadId) -> frozenset[ThreadId]:
    heads = [item for item in instance.threads.all(archived=True) if isinstance(item, Head)]
    above = parent_threads(instance, heads)
    threads = {thread}
    while more := {child for child, parent in above.items() if parent in threads} - threads:
        threads |= more
    return frozenset(threads)


def _name(path: str, query: Query) -> str:
    if path == "/" and not query:
        return "index.html"
    parts = [_safe(part) for part in path.strip("/").split("/")] if path != "/" else ["threads"]
    suffix = "".join("." + _safe(f"{name}-{value}") for name, value in query)
    return "/".join(parts) + suffix + ".html"


def _safe(text: str) -> str:
    if _PLAIN.fullmatch(text) and not _DOUBTFUL.fullmatch(text):
        return text
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40] + f"-{digest}"
