"""The site: which address has which page, and how a request becomes one.

A page is made by a function of its module from the store, opened anew for each request as a command opens it, and from
what was asked for. They run in the main thread one after another, as the limits of a workflow's expressions need.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from uwf_cli.failures import describe
from uwf_cli.page import style
from uwf_cli.web import render, step, thread, threads
from uwf_cli.web.addresses import Asked, Page
from uwf_git import __version__
from uwf_git.errors import NotFound
from uwf_git.store.location import Location
from uwf_git.store.opened import Instance

Maker = Callable[[Instance, Asked], Page]

PAGES: tuple[tuple[str, Maker], ...] = (
    ("/", threads.page),
    ("/thread/{id}", thread.page),
    ("/thread/{id}/step/{number}", step.step_page),
    ("/thread/{id}/attempt/{node}", step.attempt_page),
)
"""The addresses that show something, and what makes their pages."""

_STATUS = {2: 400, 3: 404, 4: 409}  # of HTTP, by exit status


class Site(NamedTuple):
    """What is served: the store of a `location`; with `write` what changes threads, with `run` what runs agents."""

    location: Location
    write: bool = False
    run: bool = False

    @contextmanager
    def opened(self) -> Iterator[Instance]:
        """The store, for one request."""
        instance = Instance(self.location)
        try:
            yield instance
        finally:
            instance.store.index.close()

    def known(self) -> Mapping[str, Any]:
        """What every template may name as `site`."""
        return {
            "store": str(self.location.git_dir if self.location.here else self.location.root),
            "write": self.write,
            "run": self.run,
            "live": True,
            "version": __version__,
        }


def application(site: Site) -> Starlette:
    """The application: its pages and what they load."""
    routes: list[BaseRoute] = [Route(path, _shows(site, maker)) for path, maker in PAGES]
    routes.append(Route("/static/base.css", _file(style.FILE)))
    routes.append(Mount("/static", StaticFiles(directory=render.FOLDER / "static")))
    made = Starlette(routes=routes, exception_handlers={404: _missing(site)})
    made.add_middleware(GZipMiddleware, minimum_size=1000)
    return made


def _file(path: Path) -> Callable[[Request], Any]:
    async def show(_request: Request) -> Response:
        return FileResponse(path)

    return show


def _shows(site: Site, maker: Maker) -> Callable[[Request], Any]:
    async def show(request: Request) -> Response:
        asked = Asked(request.path_params, tuple(request.query_params.multi_items()))
        page = made(site, maker, asked)
        return _response(site, page, request.headers.get("if-none-match", ""))

    return show


def made(site: Site, maker: Maker, asked: Asked) -> Page:
    """The page that a function makes, or the one that says why there is none."""
    try:
        with site.opened() as instance:
            return maker(instance, asked)
    except Exception as error:
        failure = describe(error)
        if failure.code == "internal":
            sys.stderr.write(f"uwf: {failure.message}\n")
        return Page(
            "failure.html",
            "Not found" if failure.status == NotFound.exit_status else "It can't be shown",
            {"failure": failure},
            _STATUS.get(failure.status, 500),
        )


def _response(site: Site, page: Page, known: str) -> Response:
    """A page as an answer, or that it is still the one that is `known`."""
    document = render.html(page, str, site.known())
    tag = f'"{hashlib.sha256(document.encode("utf-8", "replace")).hexdigest()[:32]}"'
    if page.status == 200 and known.removeprefix("W/") == tag:
        return Response(status_code=304, headers={"etag": tag})
    return HTMLResponse(document, page.status, headers={"etag": tag})


def _missing(site: Site) -> Callable[[Request, Exception], Any]:
    async def show(request: Request, _error: Exception) -> Response:
        def maker(_instance: Instance, _asked: Asked) -> Page:
            raise NotFound(f"no page {request.url.path}", "begin at the list of threads")

        return _response(site, made(site, maker, Asked({})), "")

    return show
