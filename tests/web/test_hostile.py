"""Hostile text in every field that a store holds: no page runs, loads or becomes any of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from conftest import Uwf
from crew_packages import CREW, folder, own
from playwright.sync_api import Page
from site_serving import Serve
from uwf_cli.page import markup
from workflows import opened, register

from uwf_git.engine.step import kill
from uwf_git.ext.web.site import FORMS, PAGES
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import Attempt, Start, Step
from uwf_git.format.types import DETAIL, QUESTION, STEPNODE, TURN
from uwf_git.git.repository import Oid
from uwf_git.store.instance import Instance

EVIL = "evil.example"
X = (
    "'\"></textarea></title></pre></code></svg></select></option></button><script>window.hit=1</script>"
    "<img id=markup src=x onerror='window.hit=2'><svg onload=window.hit=3></svg>"
    "<iframe srcdoc='<script>top.hit=4</script>'></iframe><style>*{display:none}</style>"
    f"<base href=//{EVIL}/><form action=//{EVIL}/><meta http-equiv=refresh content='0;url=//{EVIL}/'>"
    f"<link rel=stylesheet href=//{EVIL}/x.css>{{{{ 7*7 }}}} {{% raw %}} javascript:window.hit=5 --> ]]>"
)
PROSE = (
    f"{X}\n\n[link](javascript:window.hit=6) ![image](http://{EVIL}/i.png) <http://{EVIL}/auto>\n\n"
    f"[data](data:text/html,<script>window.hit=7</script>) "
    f"[plain](http://{EVIL}/plain 'x\" onclick=\"window.hit=8')\n\n"
    f'```"><script>window.hit=9</script>\n{X}\n```\n\n'
    f"| <b id=markup> | {EVIL} |\n|---|---|\n| {X} | \x1b[31m\u202e |\n\n"
    f"[ref]: javascript:window.hit=10\n[ref] &lt;script&gt; &#x3C;script>\n"
)

SAID = json.dumps(X)
# Of a prompt the templates are the workflow's own.
PLAIN = json.dumps(X.replace("{", "(").replace("}", ")"))
WORKFLOW = f"""\
name: hostile
description: {SAID}
roles:
  writer:
    description: {SAID}
    systemPrompt: {PLAIN}
    outputSchema: {{type: object, description: {SAID}, additionalProperties: true}}
  critic:
    description: {SAID}
    systemPrompt: Judge.
    outputSchema: {{type: object, additionalProperties: true}}
conditions:
  odd: {{description: {SAID}, expression: "steps[-1].output.odd = 'no'"}}
graph:
  $START: [{{role: writer, prompt: {PLAIN}}}]
  writer: [{{role: critic, condition: odd}}, {{role: writer}}]
  critic: [{{role: $END}}]
"""


def _step(instance: Instance, thread: ThreadId, output: dict[str, Any], schema: str | None = None) -> Hash:
    head = instance.threads.head(thread)
    history = instance.threads.history(head)
    store = instance.store
    with store.together():
        kept = store.put(schema or history.workflow.roles["writer"].schema, output)
        step = Step(history.start_hash, history.prev, "writer", kept, _detail(instance, head.node), X)
        node = store.put(STEPNODE, step.payload())
        instance.threads.append(head, node, {each.hash for each in history.steps}, (), "native")
    return node


def _detail(instance: Instance, context: Hash, **more: Any) -> Hash:
    turns: list[dict[str, Any]] = [
        {
            "role": role,
            "text": PROSE,
            "model": X,
            "tool": X,
            "call": X,
            "arguments": {X: [X, {X: X}]},
            "result": PROSE,
        }
        for role in ("assistant", "tool", "user")
    ]
    payload = {
        "answer": PROSE,
        "turns": [instance.store.put(TURN, turn) for turn in turns],
        "session": X,
        "model": X,
        "usage": {"input": 1, "output": 1, "cached": 0},
        "durationMs": 1000,
        "instruction": PROSE,
        "context": context,
        "extraction": "native",
        "cost": 0.1,
        **more,
    }
    return instance.store.put(DETAIL, payload)


class Filled:
    """A store of hostile texts: the parts of addresses by the names that routes have for them."""

    def __init__(self, uwf: Uwf, tmp_path: Path, hermetic: Path) -> None:
        # Git takes angle brackets out of names.
        name = (
            "Ada ' onmouseover='window.hit=11' &lt;img id=markup src=x&gt; {{ 7*7 }} javascript:window.hit=12"
        )
        (hermetic / ".gitconfig").write_text(f"[user]\n\tname = {json.dumps(name)}\n\temail = x'onload=1@x\n")
        uwf("init")
        instance = opened()
        version = register(instance, WORKFLOW)

        def start() -> ThreadId:
            return instance.threads.start(Oid(hex=version.commit), Start(version.hash, PROSE))

        output = {X: X, "text": PROSE, "list": [X, {X: [X]}], "status": X, "$ref": X}
        self.done, self.asking = start(), start()
        first = _step(instance, self.done, output)
        self.forked = instance.threads.fork(instance.threads.commit_of(first))
        _step(instance, self.done, {**output, "odd": "no"})
        _step(instance, self.forked, {"other": PROSE})
        question = {"$status": "$SUSPEND", "question": PROSE, "options": [X, PROSE], "reason": X}
        _step(instance, self.asking, question, QUESTION)
        head = instance.threads.head(self.forked)
        history = instance.threads.history(head)
        detail = _detail(instance, head.node, extraction="failed")
        failed = Attempt(history.start_hash, history.prev, "writer", X, PROSE, detail)
        self.attempt = instance.attempts.record(head, failed).hash
        kill(instance, self.done, X)
        uwf("thread", "pause", self.asking, f"--message={X}")
        crew = CREW
        for text in (
            "Mary",
            "Analyst",
            "Plans a trip and checks it.",
            "Plan the trip",
            "Plan a trip",
            "Tell a story",
        ):
            crew = crew.replace(text, SAID)
        crew = crew.replace("Finds out what people want.", SAID).replace(
            "Say in three lines what you know.", PLAIN
        )
        uwf("crew", "import", folder(tmp_path / "crew", own(crew)))

    def addresses(self) -> Iterator[str]:
        """Every page, in every state that matters, with every part of it hostile, and with a hostile query."""
        odd = quote(X, safe="")
        for pattern, _ in (*PAGES, *FORMS):
            parts = {"a": self.done, "b": self.forked, "name": "trip" if "crew" in pattern else "hostile"}
            threads = (self.done, self.forked, self.asking) if "{id}" in pattern else ("",)
            for thread in threads:
                at = {**parts, "id": thread, "number": "1", "node": self.attempt, "hash": self.attempt}
                yield _filled(pattern, at)
            if "{" in pattern:
                yield _filled(pattern, dict.fromkeys((*parts, "id", "number", "node", "hash"), odd))
            yield (
                _filled(
                    pattern,
                    {**parts, "id": self.done, "number": "1", "node": self.attempt, "hash": self.attempt},
                )
                + "?"
                + urlencode(dict.fromkeys(_QUERY, X))
            )
        yield f"/?{urlencode({'search': X, 'author': X, 'workflow': X})}"
        yield f"/?{urlencode({'search': 'script', 'tab': 'all'})}"
        yield from (f"/?{urlencode({'at': at})}" for at in (self.asking, X))
        yield f"/?{urlencode({'for': X})}"
        yield f"/threads?{urlencode({'q': f'--sort cost {X}', 'open': X, 'done': X, 'thread': X})}"
        yield f"/start?{urlencode({'workflow': X})}"
        yield "/workflow/trip/plan-trip"
        yield f"/{odd}"


_QUERY = (
    "q",
    "search",
    "tab",
    "workflow",
    "author",
    "since",
    "from",
    "before",
    "whole",
    "by",
    "a",
    "b",
    "version",
    "until",
)


def _filled(pattern: str, parts: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)(?::\w+)?\}", lambda found: parts[found[1]], pattern)


# What a page consists of that hostile text may not have become.
_INJECTED = """() => [
  ...document.querySelectorAll('#markup, iframe, object, embed, base, style, script:not([src]), meta[http-equiv], img'),
  ...[...document.querySelectorAll('*')].filter(e => [...e.attributes].some(a => a.name.startsWith('on'))),
  ...[...document.querySelectorAll('[href], [src], [action], [formaction]')].filter(e =>
    ['href', 'src', 'action', 'formaction'].some(name => e.hasAttribute(name)
      && !/^(https?:|\\/|#|\\?)/.test(e.getAttribute(name)))),
  ...[...document.querySelectorAll('link, script, form')].filter(e =>
    !(e.href || e.src || e.action || '').toString().startsWith(location.origin)),
  ...[...document.querySelectorAll('a[href]')].filter(e =>  // a link of a drawing has no origin
    new URL(e.getAttribute('href'), location).origin !== location.origin && !/noreferrer/.test(e.getAttribute('rel'))),
].map(e => e.outerHTML.slice(0, 200))"""


def test_no_page_runs_loads_or_becomes_what_a_store_holds(
    serve: Serve, page: Page, uwf: Uwf, tmp_path: Path, hermetic: Path
) -> None:
    filled = Filled(uwf, tmp_path, hermetic)
    serving = serve("--write", "--run")
    asked: list[str] = []
    said: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.goto(serving.launch)
    seen = 0
    for address in filled.addresses():
        answer = page.goto(serving.address + address)
        assert answer is not None and answer.status < 500, (address, page.inner_text("main"))
        assert page.evaluate(_INJECTED) == [], address
        assert page.evaluate("window.hit") is None, address
        seen += "window.hit=1" in page.inner_text("body")
        page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert seen > len(PAGES)
    assert [url for url in asked if not url.startswith(serving.address)] == []
    assert [text for text in said if "Failed to load resource" not in text] == []


def test_markdown_can_not_grow_far_beyond_what_was_written() -> None:
    bomb = "|a" * 2487 + "\n" + "|-" * 2487 + "\n" + "|\n" * 5000
    assert len(markup.markdown(bomb)) < 2 * len(bomb)
    table = "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 500
    assert markup.markdown(table).count("<td>") == 1000
    with markup.room_for_markdown(100):
        assert "<em>" in markup.markdown("*one*" * 10)
        assert "*one*" in markup.markdown("*one*" * 30)
