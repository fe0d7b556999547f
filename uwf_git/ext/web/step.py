"""The parts of a step or failed attempt on its page: what `step_view` says, as HTML.

Contents are untrusted. Oversized parts are cut or not read, and the page names the command that prints them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup

from uwf_git.ext.web import output
from uwf_git.ext.web.code import CodeView, code_of_step
from uwf_git.ext.web.page.step import took, turn
from uwf_git.plugin import (
    FORK,
    JOIN,
    STEP_TABS,
    TURNS_SHOWN,
    CodeVerdict,
    JudgedCode,
    LastOutput,
    PageRequest,
    Revision,
    TurnRecord,
    WantedParts,
    attempt_view,
    markup,
    presented_at,
    presented_code,
    role_name,
    step_view,
    watching,
)

if TYPE_CHECKING:
    from uwf_git.plugin import Head, Instance, Presented, ThreadId

ALL = "all"
"""The tab of a page that has all of them, as an export's."""

_LONG = 2_000  # characters of an output that has a page
_LIVE = 20  # turns of a step that is being made, of which the newest are shown


class Part(NamedTuple):
    """A possibly large part: `html` is shown, `left` says what isn't, `name` requests more or is ""; `short`
    needs no fold. `file` is the name by which its output has a page, "" if it is shown whole in a few lines."""

    html: Markup
    left: str = ""
    name: str = ""
    short: bool = False
    file: str = ""


def part_of(view: Mapping[str, Any] | None, name: str = "") -> Part | None:
    """Return a part of a step as HTML. `name` is that of an output, whose lines are numbered."""
    if view is None:
        return None
    if "value" in view:
        html = markup.value(view["value"])
    elif not view["text"]:
        html = ""
    elif name:
        kind = "markdown" if view.get("prose") else ""
        html = output.view(view["text"], kind=kind, prefix=f"{name}-").html
    else:
        show = markup.markdown if view.get("prose") else markup.lines
        html = show(view["text"])
    is_long = bool(view["left"]) or len(view.get("text", "")) > _LONG
    return Part(Markup(html), view["left"], view["name"], view["short"], name if is_long else "")


def chosen_step(instance: Instance, head: Head, number: str, request: PageRequest) -> dict[str, Any]:
    """Return a step for the page of its thread. Query: `tab`, `turns` to skip, and `whole`, the part to show in full.
    Raises NotFound, Usage, StoreDamaged."""
    tab, parts = _parts(request)
    return _shown(instance, head, step_view(instance, head, number, parts), tab, request)


def chosen_attempt(instance: Instance, head: Head, node: str, request: PageRequest) -> dict[str, Any]:
    """Return a failed attempt for the page of its thread. Raises NotFound, Usage, StoreDamaged."""
    tab, parts = _parts(request)
    return _shown(instance, head, attempt_view(instance, head, node, parts), tab, request)


def _parts(request: PageRequest) -> tuple[str, WantedParts]:
    """Return the tab and what is read for it. The code is read when it is shown, so not for an export."""
    tab, whole = request.one("tab"), request.one("whole")
    if tab not in (*STEP_TABS, ALL):
        tab = {"patch": "changes", "prompt": "prompt"}.get(
            whole, "turns" if request.one("turns") else "result"
        )
    tabs = set(STEP_TABS if tab == ALL else (tab,)) - {"changes"}
    return tab, WantedParts(tabs, request.number("turns"), whole)


def _shown(
    instance: Instance, head: Head, view: Mapping[str, Any], tab: str, request: PageRequest
) -> dict[str, Any]:
    result, prompt, turns = view.get("result", {}), view.get("prompt"), view.get("turns")
    title = {FORK: "fork", JOIN: "join"}.get(view["role"]) or role_name(view["role"])
    if view["kind"] in ("answer", "remark"):
        title = f"{view['kind']} of {view['by']}"
    code = Revision(**view["code"]) if view["code"] is not None else None
    tabs = ["result", *(["changes"] if code is not None else []), *(["turns"] if view["manyTurns"] else [])]
    tabs += [*(["prompt"] if view["hasPrompt"] else []), "record"]
    return {
        **view,
        "title": title,
        "tab": tab,
        "tabs": tabs,
        "asked": request,
        "took": took({**view["took"]}),
        "output": part_of(result.get("output"), "output"),
        "error": part_of(result.get("error"), "error"),
        "printed": [(name, part_of(text, name)) for name, text in result.get("printed", ())],
        "said": part_of(result.get("answer"), "answer"),
        "raw": part_of(result.get("raw"), "raw"),
        "code": code_of_step(instance, head.thread, code),
        "prompt": part_of(prompt["text"]) if prompt else None,
        "instruction": part_of(prompt["instruction"]) if prompt else None,
        "turns": _turns(turns) if turns else [],
        "many_turns": view["manyTurns"],
        "skipped": turns["skipped"] if turns else 0,
        "page_size": TURNS_SHOWN,
    }


def _turns(turns: Mapping[str, Any]) -> list[Markup | None]:
    records = [TurnRecord(**{**item, "usage": None}) if item else None for item in turns["items"]]
    return [Markup(turn(_once(record, turns["answer"]))) if record else None for record in records]


def _once(record: TurnRecord, answer: str) -> TurnRecord:
    if answer and record.role == "assistant" and record.text.strip() == answer:
        return record._replace(text="*The answer of the step.*")
    return record


class ShownView(NamedTuple):
    """What stands above the choices of a person: the verdicts before, the last output with the text besides, and the
    code, or a line on changes that are not shown."""

    verdicts: tuple[CodeVerdict, ...] = ()
    last: LastOutput | None = None
    output: Part | None = None
    report: Part | None = None
    code: CodeView | None = None
    unshown: str = ""


def shown_view(instance: Instance, head: Head, left: Revision | None = None) -> ShownView:
    """Return what is shown at a head, of an ended thread with the code that it `left`. Read errors are raised."""
    if left is not None:
        return _shown_view(
            presented_code(instance, head)._replace(code=JudgedCode(instance, head.thread, left))
        )
    shown = presented_at(instance, head)
    return _shown_view(shown) if shown is not None else ShownView()


def _shown_view(shown: Presented) -> ShownView:
    parts, last = WantedParts(), shown.last
    output = report = None
    if last is not None:
        output = (
            Part(Markup(""), last.problem) if last.problem else part_of(parts.value("output", last.output))
        )
        report = part_of(parts.prose("report", last.report), "report") if last.report.strip() else None
    verdicts = shown.verdicts if len(shown.verdicts) > 1 else ()
    code = CodeView(shown.code) if shown.code is not None else None
    return ShownView(verdicts, last, output, report, code, shown.unshown)


def live_turns(instance: Instance, thread: ThreadId) -> tuple[list[Markup], int]:
    """Return the newest turns of the step in progress, and their number."""
    turns = watching.current_turns(instance, thread)
    return [Markup(turn(item)) for item in turns[-_LIVE:]], len(turns)
