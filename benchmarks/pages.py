"""Pages of `uwf web`, served by a process of a real install: how soon they are there, how much is sent, how soon a page
hears of a turn, and what a page that is only open costs."""

from __future__ import annotations

import json
import os
import posixpath
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
from measure import fastest, timed
from rows import Row, Size, cost
from stores import UWF, Lab

_STEPS = 1000
_PLENTY = 150_000  # bytes
_LOOKS = (2.0, 2.5, 3.1, 3.9)  # seconds between the looks of a page that is only open, in its first ten
_REST = 30  # and of one that nobody has touched for a while
_PAGES = 100

AGENT = """
import time
from uwf_git.kit import Reply, TurnRecord, create_agent

def run(ctx):
    turns = []
    for _ in range(ctx.options):
        time.sleep(0.4)
        turns.append(TurnRecord("assistant", f"at {time.time():.6f}"))
        ctx.record(turns[-1])
    return Reply("---\\nstatus: done\\nnote: it is done\\n---\\n", turns=tuple(turns))

create_agent("bench", run, lambda ctx, session, message: run(ctx), parse_args=lambda args: int(args[0])).main()
"""
"""An agent of the kit, whose turns say when they were written."""


def first_page(folder: Path, size: Size) -> Iterator[Row]:
    """The list of many threads, and what an open page costs."""
    lab = Lab(folder)
    lab.threads(size.many, 1)
    with _served(lab) as (client, pid):
        (seconds,) = fastest(size.few_turns, timed(lambda: _get(client, "/threads")))
        yield cost(f"the first page of {size.many:,} threads, by HTTP", seconds, 0.3)
        yield _sent(client, "the same", "/threads")
        for name, path in (("inbox", "/"), ("spending", "/stats"), ("workflow", "/workflow/by-status")):
            (seconds,) = fastest(size.few_turns, timed(partial(_get, client, path)))
            yield cost(f"the {name} page of the same, by HTTP", seconds, 0.3)
        tag = client.get("/threads").headers["etag"]
        time.sleep(2.5)  # what has just changed is looked at more closely
        began, used = time.monotonic(), _used(pid)
        for pause in _LOOKS[: size.few_turns]:
            time.sleep(pause)
            tag = client.get("/threads", headers={"If-None-Match": tag}).headers["etag"]
        share = 100 * (_used(pid) - used) / (time.monotonic() - began)
        yield Row("an open page's looks, of one CPU", share, "%", None, 1)
        looks, used = 100 * size.few_turns, _used(pid)
        for _ in range(looks):
            assert client.get("/threads", headers={"If-None-Match": tag}).status_code == 304
        share = 100 * (_used(pid) - used) * _PAGES / looks / _REST
        yield Row(f"the looks of {_PAGES} pages at rest, of one CPU", share, "%", None, 0.5)


def a_long_thread(folder: Path, size: Size) -> Iterator[Row]:
    """The page of a long thread, one of its steps, and how much of both is sent."""
    from uwf_cli.page.addresses import PageRequest

    from uwf_git.ext.web import render, thread
    from uwf_git.ext.web.site import Site, respond

    steps = min(_STEPS, size.long)
    lab = Lab(folder)
    [found] = lab.threads(1, steps)
    site = Site(lab.location)

    def in_library() -> str:
        page = respond(site, thread.page, PageRequest({"id": found}))
        assert page.status == 200, page
        return render.html(page, str, {**site.known(), "tag": ""})

    (seconds,) = fastest(size.few_turns, timed(in_library))
    yield cost(f"the page of a thread of {steps:,} steps, in the library", seconds, 0.1)
    address = f"/thread/{found}"
    with _served(lab) as (client, _):
        (seconds,) = fastest(size.few_turns, timed(lambda: _get(client, address)))
        yield cost("the same by HTTP", seconds, 0.3)
        yield _sent(client, "the same", address)
        (seconds,) = fastest(size.few_turns, timed(lambda: _get(client, f"{address}/step/{steps}")))
        yield cost("the page of its last step, by HTTP", seconds, 0.3)
        yield _sent(client, "the same", f"{address}/step/{steps}")


def live(folder: Path, size: Size) -> Iterator[Row]:
    """From a turn that is written to the event that a page reads; the median of some."""
    turns = max(size.few_turns, 2)
    lab = Lab(folder)
    found = lab.start()
    agent = folder / "agent.py"
    agent.write_text(AGENT)
    with _served(lab) as (client, _):
        command = [UWF, "thread", "step", found, "--agent", f"{sys.executable} {agent} {turns + 1}"]
        step = subprocess.Popen(
            command,
            env=lab.environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            while not lab.instance.locks.is_held(found):
                time.sleep(0.05)
            late = sorted(_late(client, found))
        finally:
            os.killpg(step.pid, signal.SIGTERM)
            step.wait()
    yield cost("a turn is written, a page hears of it", late[len(late) // 2], 0.3)


def _late(client: httpx.Client, thread: str) -> list[float]:
    """The seconds by which each turn was late, the first left out: it may have been there."""
    found: list[float] = []
    with client.stream("GET", f"/thread/{thread}/events") as answer:
        for line in answer.iter_lines():
            if said := re.search(r"at (\d{10}\.\d{6})", line):
                found.append(time.time() - float(said[1]))
    return found[1:]


GATES = b"""
name: gates
description: A person and a program in turn.
roles:
  person: &role
    description: Says whether to go on.
    systemPrompt: Say it.
    human: true
    outputSchema:
      type: object
      properties: {status: {enum: [more, enough]}}
      required: [status]
  program: {<<: *role, human: false}
graph:
  $START: {_: person}
  person: {more: program, enough: $END}
  program: {_: person}
"""


def answered(folder: Path, size: Size) -> Iterator[Row]:
    """From the answer of a person on a page to the start of the next role's program; the median of some."""
    lab = Lab(folder, GATES)
    thread, began = lab.start(), folder / "began"
    script = folder / "program.sh"
    script.write_text(f'date +%s.%N >>{began}\necho \'{{"status": "more"}}\'\n')
    (folder / "config.yaml").write_text(
        f"agents: {{program: {{command: uwf-exec, args: [sh, {script}]}}}}\ndefaultAgent: program\n"
    )
    late = []
    with _served(lab, "--run") as (client, _):
        client.headers["Origin"] = str(client.base_url).rstrip("/")
        for number in range(1, size.few_turns + 2):
            head = lab.instance.threads.head(thread).node
            form = {"head": head, "pick1": "1", "go": "yes"}
            sent = time.time()
            assert client.post(f"/thread/{thread}/answer", data=form).status_code == 303
            while not began.exists() or len(starts := began.read_text().split()) < number:
                time.sleep(0.005)
            late.append(float(starts[-1]) - sent)
            while (
                lab.instance.locks.is_held(thread)
                or lab.instance.threads.head(thread).row.number < 2 * number
            ):
                time.sleep(0.01)
    late = sorted(late[1:])  # the first starts a process that the next ones find
    yield cost("an answer on a page, the next program starts", late[len(late) // 2], 0.3)


@contextmanager
def _served(lab: Lab, *options: str) -> Iterator[tuple[httpx.Client, int]]:
    """A client that was let in, and the server's process id."""
    process = subprocess.Popen(
        [UWF, "--format", "json", "web", "--no-open", *options],
        env=lab.environ,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        with httpx.Client(base_url=said["address"], trust_env=False, timeout=60) as client:
            client.get(said["launch"])
            yield client, process.pid
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def _get(client: httpx.Client, address: str) -> None:
    client.get(address).raise_for_status()


def _sent(client: httpx.Client, what: str, address: str) -> Row:
    """How much is sent for a page that a browser sees for the first time, without the script that lays graphs out."""
    page = client.get(address)
    page.raise_for_status()
    sent = page.num_bytes_downloaded
    text = page.text
    own = re.findall(r'<(?:link rel="stylesheet" href|script type="module" src)="(/static/[\w./-]+)"', text)
    scripts: set[str] = set()
    for name in own:
        if name.endswith(".js"):
            _scripts(client, name, scripts)
    for part in {*own, *scripts}:
        sent += client.get(part).raise_for_status().num_bytes_downloaded
    return Row(f"{what}, sent with its style and scripts", sent / 1000, "KB", None, _PLENTY / 1000)


def _scripts(client: httpx.Client, script: str, known: set[str]) -> set[str]:
    """A script and those that it imports, but for dagre."""
    if script not in known and "/dagre/" not in script:
        known.add(script)
        text = client.get(script).raise_for_status().text
        for name in re.findall(r"""(?:from|import\()\s*["']\./([\w./-]+)["']""", text):
            _scripts(client, posixpath.join(posixpath.dirname(script), name), known)
    return known


def _used(pid: int) -> float:
    """The seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
