"""`uwf web`."""

from __future__ import annotations

import ipaddress
import os
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uwf_git.plugin import (
    Invocation,
    Location,
    NotFound,
    ProgressMeter,
    Table,
    Usage,
    UwfError,
    adopt_news,
    command,
    completers,
    counted,
    find_thread,
    install_hint,
    iso,
    locate_store,
    terminal,
)

if TYPE_CHECKING:
    from uwf_git.ext.web.server import Served

_LOCAL = ("127.0.0.1", "::1")
_NEEDED = ("starlette", "uvicorn", "jinja2")


@command(
    "uwf web                       the project's threads, in the browser",
    "uwf web 01JK7M                one of them",
    "uwf web --write --run         with buttons to answer, fork, step",
    "uwf web --export pages        as files, to keep or to mail",
)
@click.argument("thread", metavar="[ID]", required=False, shell_complete=completers.complete_thread)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    metavar="N",
    help="Port to listen on. Default: 8470, or a free one.",
)
@click.option(
    "--store",
    "stores",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="Serve the store of this project or storage root too. Repeatable.",
)
@click.option("--no-open", is_flag=True, help="Don't open a browser.")
@click.option(
    "--write",
    is_flag=True,
    help="Allow answers, starts, forks, pauses and kills from the pages. Runs no agents.",
)
@click.option("--run", is_flag=True, help="Allow the pages to run agents and land work. Includes --write.")
@click.option(
    "--host",
    metavar="ADDRESS",
    help="Address to listen on. Default: 127.0.0.1. All but loopback need --name.",
)
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="HOST",
    help="Host name that requests may use, or https://HOST of a proxy. Repeatable.",
)
@click.option(
    "--person-header",
    metavar="HEADER",
    help="Header in which a proxy names the person, such as X-Forwarded-Email.",
)
@click.option(
    "--trust-proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="Address of the proxy. Default: 127.0.0.1 and ::1. Repeatable.",
)
@click.option(
    "--export",
    "folder",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write the pages to this folder instead of serving them.",
)
def web(
    invocation: Invocation,
    thread: str | None,
    port: int | None,
    stores: tuple[Path, ...],
    no_open: bool,
    write: bool,
    run: bool,
    host: str | None,
    names: tuple[str, ...],
    person_header: str | None,
    proxies: tuple[str, ...],
    folder: Path | None,
) -> None:
    """Serve web pages of threads, graphs, steps and costs on this machine, until Ctrl-C.

    The printed address grants access once; nothing is loaded from elsewhere. Read-only unless --write is
    given. Other people sign in by links of uwf web invite, or by --person-header, which is believed if the
    proxy also sends the secret of UWF_WEB_PROXY_SECRET as Uwf-Proxy-Secret.

    --export writes static pages without scripts, of all threads or of one with its sub-workflows, to a folder
    that is new, empty or from an earlier export.
    """
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        raise UwfError(f"uwf web needs the package {missing[0]}", install_hint("web"))
    if host is not None and not names and not _is_loopback(host):
        raise Usage("--host without a name", "say by which host it may be asked for: --name my-machine")
    if folder is not None:
        if port or stores or no_open or write or run or host or names or person_header or proxies:
            raise Usage("--export serves nothing", "give it alone, or with an ID")
        _export(invocation, folder, thread)
        return
    if proxies and person_header is None:
        raise Usage("--trust-proxy without a header", "name it: --person-header X-Forwarded-Email")
    from uwf_git.ext.web.people import parse_proxy
    from uwf_git.ext.web.server import LOOPBACK, serve
    from uwf_git.ext.web.site import Site
    from uwf_git.plugin import page_addresses

    proxy = parse_proxy(person_header, proxies or _LOCAL, os.environ) if person_header is not None else None
    _ = invocation.instance  # that there is a store is said here, and not on each page
    adopt_news(invocation)
    path = page_addresses.thread(find_thread(invocation, thread)) if thread else "/"
    others = list(dict.fromkeys(map(_store_of, stores)))
    if others and any(name.startswith("https://") for name in names):
        raise Usage("--store behind a proxy, which has one port", "serve each store by a uwf web of its own")
    sites = [Site(invocation.location, write or run, run, invocation.place)]
    sites += [Site(location, write or run, run) for location in others if location != invocation.location]

    def tell(served: Served) -> None:
        value = {"address": served.address, "launch": served.launch}
        invocation.emit(
            value,
            lambda shown: terminal.fields([("open", shown["launch"]), ("end", "Ctrl-C")]),
            compact=True,
        )

    serve(sites, path, host or LOOPBACK, names, port, tell, not no_open, proxy)


@command(
    'uwf web invite "Ada Example <ada@example.com>"         may answer',
    'uwf web invite "Bob Example <bob@example.com>" --read  may look',
    "uwf web invite --list",
    "uwf web invite --revoke ada@example.com",
)
@click.argument("person", metavar="[PERSON]", required=False)
@click.option("--read", is_flag=True, help="Allow reading only.")
@click.option("--write", is_flag=True, help="Allow what uwf web --write does. Default.")
@click.option("--run", is_flag=True, help="Allow what uwf web --run does.")
@click.option("--list", "lists", is_flag=True, help="List who is invited or signed in.")
@click.option("--revoke", metavar="ADDRESS", help="End the links and sessions of an address.")
def invite(
    invocation: Invocation,
    person: str | None,
    read: bool,
    write: bool,
    run: bool,
    lists: bool,
    revoke: str | None,
) -> None:
    """Print a link that signs a person in to the pages of uwf web, in one browser, once.

    PERSON is NAME <ADDRESS>. What they do on the pages is recorded in this name, unsigned. They may do as much
    as the server allows, at most. A link counts for a day, the session that it begins for 30 days.
    """
    from uwf_git.ext.web import people
    from uwf_git.ext.web.access import SIGN_IN, TOKEN

    instance = invocation.instance
    instance.require_person("invites people")
    if sum((person is not None, lists, revoke is not None)) != 1 or (
        person is None and (read or write or run)
    ):
        raise Usage("name one person to invite", "or give --list, or --revoke ADDRESS")
    if read + write + run > 1:
        raise Usage("more than one of --read, --write and --run", "each allows what is before it")
    invitations = people.Invitations(invocation.location)
    if lists:
        rows = [
            {
                "name": item.by.name,
                "email": item.by.email,
                "may": item.may,
                "kind": item.kind,
                "until": iso(item.until),
            }
            for item in invitations.all()
        ]
        columns = [(name, name) for name in ("name", "email", "may", "kind", "until")]
        invocation.emit(rows, Table(*columns, empty="Nobody is invited."))
        return
    if revoke is not None:
        number = invitations.revoke(revoke)
        if not number:
            raise NotFound(f"nobody of {revoke} is invited", "see: uwf web invite --list")
        invocation.emit({"email": revoke, "revoked": number})
        return
    assert person is not None
    by = people.parse_person(person)
    instance.redactor.refuse(by.ident, "the person", "an invitation")
    running = invitations.running()
    if not (address := next(iter(running), invitations.address)):
        raise Usage("uwf web has not served this store yet", "start it first: uwf web --write")
    if not running:
        instance.warn(f"no server of this store runs now: the link counts once uwf web is at {address} again")
    may = people.READ if read else people.RUN if run else people.WRITE
    secret = invitations.invite(by, may)
    link = f"{address}{SIGN_IN}?{TOKEN}={secret}"
    invocation.emit(
        {"name": by.name, "email": by.email, "may": may, "link": link},
        lambda shown: terminal.fields([("for", by.ident), ("may", may), ("link", shown["link"])]),
    )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _store_of(folder: Path) -> Location:
    """Return the store of a storage root, or of the project around a folder. Raises NotFound."""
    folder = folder.resolve()
    if (folder / "store.git").is_dir():
        return locate_store(str(folder), {}, folder)
    location = locate_store(None, {"HOME": os.environ.get("HOME", "/")}, folder)
    if not location.here:
        raise NotFound(f"no store in {folder}", f"make one: cd {shlex.quote(str(folder))} && uwf init --here")
    return location


def _export(invocation: Invocation, folder: Path, thread: str | None) -> None:
    from uwf_git.ext.web.export import export
    from uwf_git.ext.web.site import Site

    adopt_news(invocation)
    thread_id, meter = find_thread(invocation, thread) if thread else None, ProgressMeter()
    try:
        site = Site(invocation.location, place=invocation.place)
        done = export(site, folder, thread_id, lambda written, of: meter.step("Writing pages", written, of))
    finally:
        meter.clear()
    threads = {"unjudged": list(done.unjudged)} if done.unjudged else {}
    invocation.emit(
        {"folder": str(folder), "files": done.files, "bytes": done.bytes, **threads},
        _exported,
    )


def _exported(value: Any) -> str:
    sentence = f"{value['folder']}: {counted(value['files'], 'file')}, {value['bytes']:,} bytes"
    unjudged = ", ".join(value.get("unjudged", ()))
    return f"{sentence}; not determined: {unjudged}" if unjudged else sentence
