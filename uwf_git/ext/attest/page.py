"""An auditor's report as one HTML file, without scripts and without anything to load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from uwf_git.plugin import counted, document, markup, role_name, tag, thread_states, title_of

_MARKDOWN = 500_000  # characters that are rendered; the rest is shown as text
_WIDTH = 12  # characters of an id in a table; the whole one is in its title

_TOKENS = ("input", "output", "cached", "written")


def audit_page(report: Mapping[str, Any]) -> str:
    """Return the page of a report."""
    record = report["record"]
    with markup.room_for_markdown(_MARKDOWN):
        parts = (
            *_header(report),
            *_verification(report["verification"]),
            *_decisions(record),
            *_steps(record, report["texts"]),
            *_unknown(report),
        )
    return document(f"Audit of {title_of(report['texts']['prompt'])}", "".join(parts))


def _header(report: Mapping[str, Any]) -> Iterator[str]:
    record = report["record"]
    end = record["end"]
    state = end["status"] if end else "not ended"
    reason = f": {markup.text(end['reason'])}" if end and end["reason"] else ""
    facts = [
        ("thread", tag("code", markup.text(record["thread"]))),
        ("head", tag("code", markup.text(record["head"]))),
        ("workflow", f"{markup.text(record['workflow']['name'])} {_id(record['workflow']['commit'])}"),
        ("started", f"{markup.text(record['start']['time'])} by {_who(record['start'])}"),
        ("state", tag("span", markup.text(state), f"badge {thread_states.colour_of(state)}") + reason),
        ("steps", str(len(record["steps"]))),
        ("as JSON", "signed" if report["signature"] else "not signed"),
    ]
    if end:
        facts.insert(5, ("ended", f"{markup.text(end['time'])} by {_who(end)}"))
    yield tag("h1", f"Audit of {markup.text(title_of(report['texts']['prompt']))}")
    yield tag("dl", "".join(tag("dt", name) + tag("dd", inside) for name, inside in facts), "facts")
    yield tag("h2", "Task") + tag("div", markup.markdown(report["texts"]["prompt"], breaks=True), "task")


def _verification(report: Mapping[str, Any]) -> Iterator[str]:
    yield tag("h2", "Verification")
    counts = ", ".join(counted(number, what.removesuffix("s")) for what, number in report["verified"].items())
    wrong = counted(len(report["findings"]), "finding") if report["findings"] else "nothing is wrong"
    yield tag("p", markup.text(f"{report['by']} at {report['time']}: {counts}: {wrong}."))
    for kind in ("findings", "warnings", "notes"):
        rows = [(markup.text(item["code"]), markup.text(item["message"])) for item in report[kind]]
        if rows:
            yield markup.table((kind, ""), rows)


def _decisions(record: Mapping[str, Any]) -> Iterator[str]:
    yield tag("h2", "Decisions")
    rows = [
        (
            f'<a href="#step-{approval["number"]}">{approval["number"]}</a>',
            markup.text(role_name(approval["role"])),
            markup.text(approval["kind"]),
            _who(answer, with_key=False)
            + (f": {markup.text(answer['reason'])}" if answer.get("reason") else ""),
            markup.text(answer["time"]),
            _id(answer.get("shown") or approval["on"]),
        )
        for approval in record["approvals"]
        for answer in (approval["given"] or [approval])
    ]
    if not rows:
        yield tag("p", "No person made a decision.", "dim")
        return
    yield markup.table(("step", "role", "kind", "by", "time", "shown"), rows)


def _steps(record: Mapping[str, Any], texts: Mapping[str, Any]) -> Iterator[str]:
    yield tag("h2", "Steps")
    for step, texts_of_step in zip(record["steps"], texts["steps"], strict=True):
        facts = list(_facts(step))
        parts = [tag("h3", f"{step['number']} {markup.text(role_name(step['role']))}")]
        parts.append(tag("dl", "".join(tag("dt", name) + tag("dd", item) for name, item in facts), "facts"))
        if texts_of_step["instruction"]:
            parts.append(tag("h4", "Prompt") + markup.markdown(texts_of_step["instruction"], breaks=True))
        parts.append(tag("h4", "Output") + markup.bounded(texts_of_step["output"]))
        yield tag("article", "".join(parts), id_=f"step-{step['number']}")


def _facts(step: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "by", markup.text(step["agent"]) + (f", {markup.text(step['model'])}" if step["model"] else "")
    yield "committed", f"{markup.text(step['time'])} by {_who(step)}"
    if step["session"]:
        yield "session", tag("code", markup.text(step["session"]))
    if usage := step["usage"]:
        yield "tokens", markup.text(", ".join(f"{usage[name]:,} {name}" for name in _TOKENS if name in usage))
    if step["cost"] is not None:
        yield "cost", markup.text(f"${step['cost']}")
    yield "output", _id(step["output"]["sha256"]) + " (SHA-256)"
    yield "commit", tag("code", markup.text(step["commit"]))
    if code := step["code"]:
        yield "code", f"{tag('code', markup.text(code['commit']))} {markup.text(code.get('remote') or '')}"
    if child := step["child"]:
        yield "done by", f"workflow {markup.text(child['workflow']['name'])} {_id(child['head'])}"


def _unknown(report: Mapping[str, Any]) -> Iterator[str]:
    yield tag("h2", "Limits of the evidence")
    yield tag("ul", "".join(tag("li", markup.text(item)) for item in report["unknown"]))
    yield tag(
        "footer",
        tag(
            "p",
            "This page is for reading, and proves nothing. The same report as JSON is compared with the commits by"
            f" verify.py: uwf export {markup.text(report['record']['thread'])} --audit-json FILE",
        ),
    )


def _who(record: Mapping[str, Any], with_key: bool = True) -> str:
    by, signature = record["by"], record["signature"]
    signed = "not signed"
    if signature:
        signer = f" by {signature['signer']}" if signature["signer"] else ""
        key = f", {signature['key'] or 'key unknown'}" if with_key else ""
        signed = f"signature {signature['state']}{signer}{key}"
    name, email = markup.text(by["name"]), markup.text(by["email"])
    return f"{name} &lt;{email}&gt; {tag('span', markup.text(f'({signed})'), 'address')}"


def _id(name: str) -> str:
    return tag("code", markup.text(name[:_WIDTH]), title=name)
