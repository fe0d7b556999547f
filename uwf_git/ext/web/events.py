"""Freshness of pages, and event streams of threads.

A page's tag depends on refs' times, running threads and the request, so a conditional request costs a few
file checks. A running thread has a stream of server-sent events
(https://html.spec.whatwg.org/multipage/server-sent-events.html): `began`, `said`, `dropped`, `printed`,
`turn`, `step`, and finally `rest`. An event's id is the last turn's place, for reconnecting. Nothing is
polled without an open stream.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from uwf_git.ext.web.page.step import turn
from uwf_git.plugin import (
    LARGEST_IN_A_LINE,
    PERMISSIONS_FOLDER,
    PRIVATE_FOLDER,
    Freshness,
    NotFound,
    StoreLocks,
    UwfError,
    Watch,
    ansi,
    brief,
    extensions,
    node_weight,
    one_line,
    parse_attempt,
    parse_step,
    role_name,
    summarise_thread,
    watching,
    without_colours,
)

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from uwf_git.plugin import EngineOrder, Hash, Instance, Location, ThreadId

MOST = 32
"""How many streams there are at once."""

_TICK = 0.1  # seconds between two looks at a thread
_GLANCE = 0.03  # and at whether its agent has printed something, which costs a hundredth
_BEAT = 15.0  # seconds after which a silent stream says that it is there
_WORDS = 200  # characters of a step's output
_PATIENCE = 10.0  # seconds for which a reader may take nothing


class Tags:
    """Tags of a store's pages at a moment."""

    def __init__(self, location: Location, known: Mapping[str, Any]) -> None:
        private = location.git_dir / PRIVATE_FOLDER
        also = (
            private / "runs",
            private / "budgets",
            private / "trusted",
            *(private / name for name in extensions.note_folders()),
            location.root / "config.yaml",
        )
        self._refs = Freshness(location.git_dir, also=also)
        self._locks = StoreLocks(private)
        self._permissions = private / PERMISSIONS_FOLDER
        self._known = sorted(known.items())

    def of(self, address: str) -> str:
        """Return a page's tag, which changes with its content. Call before making the page."""
        # "Today" and "2 days ago" mean something else tomorrow.
        asked = sorted(path.name for path in self._permissions.glob("*/*"))
        state = (
            self._refs.mark(),
            sorted(self._locks.held()),
            asked,
            time.strftime("%F"),
            self._known,
            address,
        )
        return f'"{hashlib.sha256(repr(state).encode("utf-8", "replace")).hexdigest()[:32]}"'


class Streams:
    """A store's event streams."""

    def __init__(self, opened: Callable[[], AbstractContextManager[Instance]]) -> None:
        self._opened = opened
        self._watchers: dict[ThreadId, Watcher] = {}

    async def answer(self, request: Request) -> Response:
        """Return a thread's stream; 204, which ends reconnecting, if idle without news `after` a place."""
        if sum(watcher.streams for watcher in self._watchers.values()) >= MOST:
            return PlainTextResponse("Too many pages are live. Close some.\n", 503, {"retry-after": "10"})
        after = watching.parse_place(
            request.headers.get("last-event-id") or request.query_params.get("after", "")
        )
        stack = ExitStack()
        try:
            watcher = self._join(request.path_params["id"], stack)
            news = watcher.follow(after, stack)
            begun = await _begin(news)
        except UwfError as error:
            stack.close()
            status = 404 if isinstance(error, NotFound) else 500
            return PlainTextResponse(f"{error.message}\n", status)
        except BaseException:
            stack.close()
            raise
        if not begun or begun == [watching.WorkStopped()]:
            stack.close()
            return Response(status_code=204)
        return _Stream(stack.close, watcher, news, begun)

    def _join(self, name: str, stack: ExitStack) -> Watcher:
        """Return the watcher of a thread, which the last stream that leaves it ends. Raises NotFound."""
        with ExitStack() as opening:
            instance = opening.enter_context(self._opened())
            thread = instance.threads.find(name)
            if (watcher := self._watchers.get(thread)) is None:
                watcher = self._watchers[thread] = Watcher(instance, thread, opening.pop_all().close)
        watcher.streams += 1
        stack.callback(self._leave, watcher)
        return watcher

    def _leave(self, watcher: Watcher) -> None:
        watcher.streams -= 1
        if not watcher.streams:
            del self._watchers[watcher.thread]
            watcher.end()


class Watcher:
    """Looks at a thread for all of its `streams`. They read the news only when its files have changed, or when nobody
    works on it: then time alone makes some."""

    def __init__(self, instance: Instance, thread: ThreadId, close: Callable[[], None]) -> None:
        self.instance = instance
        self.thread = thread
        self.streams = 0
        self.version = 0
        """Grows with each change."""
        self._close = close
        self._feeds: list[watching.TurnFeed] = []
        self._refs = Freshness(instance.location.git_dir, watching.REFS)
        self._changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._looking = asyncio.create_task(self._look())

    def follow(self, after: watching.TurnPosition | None, stack: ExitStack) -> watching.TurnFeed:
        """Return a stream's news, until the stack is closed. Raises NotFound, StoreDamaged."""
        feed = watching.TurnFeed(self.instance, self.thread, after)
        self._feeds.append(feed)
        stack.callback(self._feeds.remove, feed)
        return feed

    async def until_changed(self, seen: int, gone: asyncio.Future[None]) -> None:
        """Wait for a version after the one that was `seen`, or less."""
        if self.version == seen and not gone.done():
            first = asyncio.FIRST_COMPLETED
            await asyncio.wait((gone, self._changed), timeout=_BEAT, return_when=first)

    def end(self) -> None:
        self._looking.cancel()
        self._close()

    async def _look(self) -> None:
        before: object = None
        streamed: object = None
        due = 0.0
        while True:
            threads = sorted({thread for feed in self._feeds for thread in feed.threads()})
            sizes, now = list(map(self.instance.runs.streamed, threads)), time.monotonic()
            if sizes != streamed or now >= due:
                signature = sizes, self._signature(threads)
                if signature != before or not self.instance.locks.is_at_work(self.thread):
                    self.version += 1
                    self._changed.set_result(None)
                    self._changed = asyncio.get_running_loop().create_future()
                before, streamed, due = signature, sizes, now + _TICK
            await asyncio.sleep(_GLANCE)

    def _signature(self, threads: Iterable[ThreadId]) -> object:
        runs = self.instance.runs
        return self._refs.mark(), [(runs.began(thread), runs.noted(thread)) for thread in threads]


async def _begin(news: watching.TurnFeed) -> list[watching.Event]:
    """Return the first events; a rest only if idle, since a run rests briefly between steps."""
    while not (events := news.news()) and not news.works:
        await asyncio.sleep(_TICK)
    return events or [watching.WordsAdded(0, "")]


class _Stream(Response):
    """A response until the thread is idle, or the client leaves or stalls."""

    media_type = "text/event-stream"

    def __init__(
        self,
        end: Callable[[], None],
        watcher: Watcher,
        news: watching.TurnFeed,
        begun: list[watching.Event],
    ) -> None:
        super().__init__(headers={"cache-control": "no-store"})
        del self.headers["content-length"]
        self._end = end
        self._watcher = watcher
        self._instance = watcher.instance
        self._news = news
        self._begun = begun
        self._style = ansi.PLAIN
        self._seen = -1  # the watcher's version before the last look

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.ensure_future(_gone(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            for data in self._data():
                if data:
                    message = {"type": "http.response.body", "body": data, "more_body": True}
                    await asyncio.wait_for(send(message), _PATIENCE)
                else:
                    await self._watcher.until_changed(self._seen, gone)
                if gone.done():
                    return
            await send({"type": "http.response.body", "body": b""})
        except TimeoutError:
            return  # the server ends the connection of an answer that isn't whole
        finally:
            gone.cancel()
            self._end()

    def _data(self) -> Iterator[bytes]:
        events, spoke = self._begun, time.monotonic()
        yield b"retry: 1000\n\n"
        while True:
            if data := b"".join(self._written(events)):
                spoke = time.monotonic()
                yield data
            elif time.monotonic() - spoke >= _BEAT:
                spoke = time.monotonic()
                yield b":\n\n"
            if any(isinstance(event, watching.WorkStopped) for event in events):
                return
            yield b""
            self._seen = self._watcher.version
            try:
                events = self._news.news()
            except UwfError:  # it was removed, or can't be read: its page says so
                events = [watching.WorkStopped()]

    def _written(self, events: Iterable[watching.Event]) -> Iterator[bytes]:
        for event in events:
            place, kind, value = self._describe(event)
            if kind:
                named = f"id: {place}\n" if place else ""
                yield f"{named}event: {kind}\ndata: {json.dumps(value)}\n\n".encode()

    def _describe(self, event: watching.Event) -> tuple[watching.TurnPosition | None, str, dict[str, Any]]:
        match event:
            case watching.StepBegan(made, order, _):
                self._style = ansi.PLAIN
                return None, "began", {**_order(made, order), "silent": self._silent()}
            case watching.WordsAdded(made, text) if text:
                return None, "said", {"made": made, "text": text}
            case watching.WordsDropped(made):
                return None, "dropped", {"made": made}
            case watching.LinesPrinted(made, text):
                return None, "printed", {"made": made, **self._printed(text)}
            case watching.TurnAdded(place, record, thread):
                return (
                    place,
                    "turn",
                    {
                        "id": str(place),
                        "thread": thread,
                        "tool": record.tool is not None,
                        "html": turn(record),
                    },
                )
            case watching.StepMade(made, node, number, failed):
                came, rules = self._came(node, failed)
                value = {"made": made, "step": number, "node": node, "failed": failed}
                return watching.TurnPosition(made + 1, 0), "step", {**value, "verdict": came, "rules": rules}
            case watching.WorkStopped():
                return None, "rest", {}
        return None, "", {}

    def _silent(self) -> int:
        """Return for how many seconds the agent has said nothing."""
        step = Watch(self._instance).step(self._news.thread)
        heard = max((inner.heard for inner in (step, step.child) if inner), default=0) if step else 0
        return max(0, int(time.time() - heard)) if heard else 0

    def _printed(self, text: str) -> dict[str, str]:
        """Return lines as text and as HTML, whose colours go on from one event to the next."""
        html, self._style = ansi.styled_lines(text, self._style, ansi.LONGEST)
        return {"text": without_colours(text), "html": html}

    def _came(self, node: Hash, failed: bool) -> tuple[str, bool]:
        """Return a step's or attempt's result in a few words, and whether it is a status or verdict; "" if
        unreadable."""
        instance = self._instance
        try:
            payload = instance.store.get(node).payload
            if failed:
                return brief(parse_attempt(payload).error, _WORDS), False
            output = parse_step(payload).output
            if node_weight(instance, output) > LARGEST_IN_A_LINE:
                return "", False
            output_node = instance.store.get(output)
            came = summarise_thread(instance, output_node.type, output_node.payload)
            return one_line(came.text, _WORDS), came.decides
        except UwfError:
            return "", False


def _order(count: int, order: EngineOrder) -> dict[str, Any]:
    by = one_line(order.credit.name, 60)
    return {"made": count, "step": order.number, "role": role_name(order.role), "by": by}


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
