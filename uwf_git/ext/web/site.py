"""The site: addresses and their pages.

A page is made by a function from a newly opened store and the request. They run one after another in the main
thread, which limits on expressions need.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from uwf_git import __version__
from uwf_git.ext.web import (
    assets,
    comparison,
    events,
    inbox,
    matrix,
    output,
    people,
    places,
    render,
    search,
    start,
    stats,
    thread,
    threads,
    workflow,
)
from uwf_git.ext.web.actions import Action, ActionFailed, offered
from uwf_git.ext.web.bulk import bulk_actions, do_all
from uwf_git.ext.web.executor import Executor
from uwf_git.ext.web.forms import Form, parse_form
from uwf_git.ext.web.notes import RESULT, ActionResult, with_result
from uwf_git.plugin import (
    Endpoint,
    Head,
    Instance,
    Location,
    NotFound,
    Page,
    PageRequest,
    Usage,
    UwfError,
    describe_failure,
    extensions,
    inbox_entries,
    markup,
    page_addresses,
    terminal,
)

Maker = Callable[[Instance, PageRequest], Page]


def _loaded(where: str) -> Maker:
    def make(instance: Instance, request: PageRequest) -> Page:
        page: Page = extensions.load(where)(instance, request)
        return page

    return make


PAGES: tuple[tuple[str, Maker], ...] = (
    ("/", inbox.page),
    ("/threads", threads.page),
    ("/thread/{id}", thread.page),
    ("/thread/{id}/step/{number}", thread.step_page),
    ("/thread/{id}/attempt/{node}", thread.attempt_page),
    ("/thread/{id}/matrix", matrix.page),
    ("/diff", comparison.page),
    ("/diff/{a}/{b}", comparison.page),
    ("/workflows", workflow.index),
    ("/workflow/{name:path}", workflow.page),
    ("/stats", stats.spending),
    ("/step/{hash}", places.page),
    ("/node/{hash}", places.page),
    *((path, _loaded(where)) for pages in extensions.pages() for path, where in pages.makers.items()),
)
"""The addresses that show something, and what makes their pages."""

Awaited = Callable[[Location, PageRequest, Path | None], Awaitable[Page]]

AWAITED: tuple[tuple[str, Awaited], ...] = (("/search", search.page), *output.PAGES)
"""Those that another process has to be waited for, while the server shows others."""

FORMS: tuple[tuple[str, Maker], ...] = (("/start", start.page),)
"""Those that only a server has which may write."""

_MOVED = frozenset(("tab", "workflow", "author", "since", "search", "status"))
"""Names in the query of the list of threads, which was at `/` before."""

_TYPED = re.compile("answer|comments|message|prompt|reason|remark|field[0-9]+")
"""The names of the fields of forms that somebody thinks about."""


class Site(NamedTuple):
    """A store's site; `write` permits changes, `run` agents. `place` is a folder whose project's threads are listed,
    None for all."""

    location: Location
    write: bool = False
    run: bool = False
    place: Path | None = None
    stores: tuple[tuple[str, str], ...] = ()
    """The stores that the user may switch to: their names and addresses, "" for this one."""

    @property
    def name(self) -> str:
        git_dir = self.location.git_dir
        folder = git_dir.parent if git_dir.name == ".git" else git_dir
        return _shown(folder if self.location.here else self.location.root)

    @contextmanager
    def opened(self) -> Iterator[Instance]:
        instance = Instance(self.location)
        instance.threads.place = self.place
        if (by := people.person()) is not None:
            instance.store.repository.config.act_for(by)
        try:
            yield instance
        finally:
            instance.store.index.close()

    def known(self) -> Mapping[str, Any]:
        """The template variable `site`."""
        return {
            "store": self.name,
            "stores": self.stores if people.person() is None else (),
            "write": self.write,
            "run": self.run,
            "live": True,
            "waits": 0,
            "person": by.name if (by := people.person()) is not None else "",
            "signs_out": people.in_session(),
            "version": __version__,
        }


def _shown(path: Path) -> str:
    with suppress(ValueError, RuntimeError):
        return f"~/{path.relative_to(Path.home())}"
    return str(path)


class Shell:
    """What all pages of a site show around their content."""

    def __init__(self, site: Site, tags: events.Tags, executor: Executor | None = None) -> None:
        self.site = site
        self.executor = executor
        self.waits = 0
        """How many items the inbox had when it was counted last."""
        self._tags = tags
        self._counted = ""

    def tag(self, address: str) -> str:
        """Return the tag of a page at an address. Call before making the page."""
        noted = self.executor.notes.version if self.executor is not None else 0
        return self._tags.of(f"{address} {noted} {self.waits} {people.person()}")

    def known(self, page: Page, tag: str) -> Mapping[str, Any]:
        """Return the template variable `site` of a page with a tag. A page may have counted the inbox."""
        number = page.values.get("waits")
        if isinstance(number, int):
            self.waits, self._counted = number, self._tags.of("")
        elif not self._counted:
            self._count(self._tags.of(""))
        return {**self.site.known(), "tag": tag, "waits": self.waits}

    async def count(self) -> None:
        """Count the inbox anew if the store has changed. That may take longer than a page, which is sent before; a
        page's tag has the number, so it is sent again if that is another."""
        if (tag := self._tags.of("")) != self._counted:
            self._count(tag)

    def _count(self, tag: str) -> None:
        with suppress(UwfError, OSError), self.site.opened() as instance:
            self.waits = len(inbox_entries(instance))
        self._counted = tag


def application(site: Site) -> Starlette:
    tags = events.Tags(site.location, site.known())
    executor = Executor(site.location, site.opened, site.run) if site.write else None
    shell = Shell(site, tags, executor)
    pages = [*PAGES, *(FORMS if site.write else ())]
    routes: list[BaseRoute] = [Route(path, _shows(shell, maker)) for path, maker in pages]
    routes += [Route(path, _awaits(shell, maker)) for path, maker in AWAITED]
    routes += output.routes(site.location)
    routes.append(Route("/thread/{id}/events", events.Streams(site.opened).answer))
    routes += [Route(path, _answers(site, endpoint)) for path, endpoint in extensions.endpoints().items()]
    if executor is not None:
        routes += _changes(shell, executor)
    routes.append(assets.ROUTE)
    respond = Starlette(routes=routes, exception_handlers={404: _missing(shell)})
    respond.add_middleware(GZipMiddleware, minimum_size=1000)
    return respond


def _answers(site: Site, endpoint: Endpoint) -> Callable[[Request], Any]:
    async def answer(_request: Request) -> Response:
        text, status, media_type = await asyncio.to_thread(endpoint.answer, site.location)
        return Response(text, status, {"cache-control": "no-store"}, media_type)

    return answer


def _shows(shell: Shell, maker: Maker) -> Callable[[Request], Any]:
    async def show(request: Request) -> Response:
        tag = shell.tag(f"{request.url.path}?{request.url.query}")
        # A reload should correct "5 minutes ago"; a script that polls counts by itself.
        opened = request.headers.get("sec-fetch-mode") == "navigate"
        if not opened and request.headers.get("if-none-match", "").removeprefix("W/") == tag:
            return Response(status_code=304, headers={"etag": tag})
        try:
            asked = _parse_request(request)
            if maker is inbox.page and not _MOVED.isdisjoint(request.query_params):
                return Response(status_code=303, headers={"location": f"/threads?{request.url.query}"})
            page = respond(shell.site, maker, asked)
            if page.status == 303:
                return Response(status_code=303, headers={"location": str(page.values["location"])})
        except Usage as error:
            page = failed(error, "It cannot be shown")
        return _response(shell, _noted(shell, page, request.query_params.get(RESULT, "")), tag)

    return show


def _noted(shell: Shell, page: Page, result: str) -> Page:
    """Return a page with the notes about actions that were performed on this server, and a `result` by its name."""
    if (executor := shell.executor) is None:
        return page
    notes: dict[str, object] = {RESULT: executor.notes.result(result)}
    if isinstance(head := page.values.get("head"), Head):
        notes |= {"refused": executor.notes.refused_at(head), "note": executor.notes.command_at(head)}
    if page.template == "inbox.html":
        notes["refusals"] = executor.refusals()
    return page._replace(values={**page.values, **notes})


def _parse_request(request: Request) -> PageRequest:
    """Parse a request, without the name of a result, which no link of its page takes along. Raises Usage for texts that
    no store or process accepts."""
    query = tuple(pair for pair in request.query_params.multi_items() if pair[0] != RESULT)
    if any(
        "\0" in part for part in (*request.path_params.values(), *(item for pair in query for item in pair))
    ):
        raise Usage("there is a NUL in the address", "leave it out")
    return PageRequest(request.path_params, query)


def _awaits(shell: Shell, maker: Awaited) -> Callable[[Request], Any]:
    async def show(request: Request) -> Response:
        try:
            page = await maker(shell.site.location, _parse_request(request), shell.site.place)
        except Exception as error:
            page = failed(error, "It cannot be shown")
        return _response(shell, respond(shell.site, lambda *_: page, PageRequest({})))

    return show


def _changes(shell: Shell, executor: Executor) -> list[Route]:
    actions = offered(shell.site.write, shell.site.run)
    names = {action.name for action in actions}

    def to_do(action: Action) -> Callable[[Request], Any]:
        return _does(shell, lambda request, form: executor.do(action, request.path_params["thread"], form))

    def to_all(name: str) -> Callable[[Request], Any]:
        return _does(shell, lambda _request, form: do_all(executor, name, form))

    return [
        *(Route(action.path, to_do(action), methods=["POST"]) for action in actions),
        *(
            Route(f"/threads/{action.name}", to_all(action.name), methods=["POST"])
            for action in bulk_actions()
            if action.name in names
        ),
        Route("/start", _does(shell, lambda _request, form: executor.start(form)), methods=["POST"]),
    ]


def _does(shell: Shell, do: Callable[[Request, Form], Awaitable[str]]) -> Callable[[Request], Any]:
    async def act(request: Request) -> Response:
        form = Form({})
        try:
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/x-www-form-urlencoded":
                raise Usage(f"a form comes as urlencoded, and not as {kind!r}", "send it from the page")
            form = parse_form(await request.body())
            address = await do(request, form)
        except Exception as error:
            return _refused(shell, request, form, error)
        return Response(status_code=303, headers={"location": address})

    return act


def _refused(shell: Shell, request: Request, form: Form, error: Exception) -> Response:
    """Return the page that a form was on, as it is now, which says why nothing was done. A script keeps what was typed
    itself, and shows the page at its own address."""
    typed = [form.text(name) for name in form.fields if _TYPED.fullmatch(name)]
    page = failed(error, "Not done", typed)
    if (of := request.path_params.get("thread")) is not None and shell.executor is not None:
        is_inbox, name = "then" in form.fields, request.url.path.rpartition("/")[2]
        place = (
            inbox.item_address(of, form.fields.get("request", "")) if is_inbox else page_addresses.thread(of)
        )
        outcome = shell.executor.outcome(of, form, error)
        result = shell.executor.notes.put_result(ActionResult(name, False, (outcome,)))
        address, query = with_result(place, result), parse_qsl(place.partition("?")[2])
        tag = shell.tag(address)
        shown = respond(shell.site, inbox.page if is_inbox else thread.page, PageRequest({"id": of}, query))
        if shown.status == 200:
            shown = _noted(shell, shown, result)
            values = {**shown.values, "typed": () if "hx-request" in request.headers else typed}
            status = 409 if outcome.news else page.status
            response = _response(shell, shown._replace(values=values, status=status), tag)
            response.headers["hx-replace-url"] = address
            return response
    return _response(shell, respond(shell.site, lambda *_: page, PageRequest({})))


def respond(site: Site, maker: Maker, request: PageRequest) -> Page:
    """Return a page, or an error page."""
    known: dict[str, object] = {}
    try:
        with site.opened() as instance, markup.room_for_markdown(render.RENDERED):
            known["sections"] = sections(instance)
            page = maker(instance, request)
    except Exception as error:
        page = failed(error, "Not found" if isinstance(error, NotFound) else "It cannot be shown")
    return page._replace(values={**known, **page.values})


def sections(instance: Instance) -> list[tuple[str, str]]:
    """Return the extensions' navigation entries for this store."""
    refs = instance.store.repository.ref_names
    return [(pages.title, next(iter(pages.makers))) for pages in extensions.pages() if refs(pages.refs)]


def failed(error: Exception, title: str, typed: Sequence[str] = ()) -> Page:
    """Return an error page with what was `typed`."""
    failure = describe_failure(error)
    if failure.code == "internal":
        sys.stderr.write(f"uwf: {terminal.escape(failure.message)}\n")
    status = (
        error.status if isinstance(error, ActionFailed) else page_addresses.STATUS.get(failure.status, 500)
    )
    return Page("failure.html", title, {"failure": failure, "typed": typed}, status)


def _response(shell: Shell, page: Page, tag: str = "") -> Response:
    known = shell.known(page, tag)
    try:
        document = render.html(page, assets.address, known)
    except Exception as error:
        page = failed(error, "It cannot be shown")
        document = render.html(page, assets.address, known)
    headers = {"etag": tag} if tag and page.status == 200 else None
    return HTMLResponse(document, page.status, headers=headers, background=BackgroundTask(shell.count))


def _missing(shell: Shell) -> Callable[[Request, Exception], Any]:
    async def show(request: Request, _error: Exception) -> Response:
        def maker(_instance: Instance, _parse_request: PageRequest) -> Page:
            raise NotFound(f"no page {request.url.path}", "begin at the list of threads")

        return _response(shell, respond(shell.site, maker, PageRequest({})))

    return show
