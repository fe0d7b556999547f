"""An auditor's report as one HTML file, without scripts and without anything to load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from uwf_git.plugin import bounded_html as bounded
from uwf_git.plugin import colour_of, counted, document, role_name, room_for_markdown, tag, title_of
from uwf_git.plugin import html_table as table
from uwf_git.plugin import html_text as text
from uwf_git.plugin import markdown_html as markdown

_MARKDOWN = 500_000  # characters that are rendered; the rest is shown as text
_WIDTH = 12  # characters of an id in a table; the whole one is in its title

_TOKENS = ("input", "output", "cached")


def audit_page(report: Mapping[str, Any]) -> str:
    """Return the page of a report."""
    record = report["record"]
    with room_for_markdown(_MARKDOWN):
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
    said = f": {text(end['reason'])}" if end and end["reason"] else ""
    facts = [
        ("thread", tag("code", text(record["thread"]))),
        ("head", tag("code", text(record["head"]))),
        ("workflow", f"{text(record['workflow']['name'])} {_id(record['workflow']['commit'])}"),
        ("started", f"{text(record['start']['time'])} by {_who(record['start'])}"),
        ("state", tag("span", text(state), f"badge {colour_of(state)}") + said),
        ("steps", str(len(record["steps"]))),
        ("as JSON", "signed" if report["signature"] else "not signed"),
    ]
    if end:
        facts.insert(5, ("ended", f"{text(end['time'])} by {_who(end)}"))
    yield tag("h1", f"Audit of {text(title_of(report['texts']['prompt']))}")
    yield tag("dl", "".join(tag("dt", name) + tag("dd", inside) for name, inside in facts), "facts")
    yield tag("h2", "Task") + tag("div", markdown(report["texts"]["prompt"], breaks=True), "task")


def _verification(found: Mapping[str, Any]) -> Iterator[str]:
    yield tag("h2", "Verification")
    counts = ", ".join(counted(number, what.removesuffix("s")) for what, number in found["verified"].items())
    wrong = counted(len(found["findings"]), "finding") if found["findings"] else "nothing is wrong"
    yield tag("p", text(f"{found['by']} at {found['time']}: {counts}: {wrong}."))
    for kind in ("findings", "warnings", "notes"):
        rows = [(text(each["code"]), text(each["message"])) for each in found[kind]]
        if rows:
            yield table((kind, ""), rows)


def _decisions(record: Mapping[str, Any]) -> Iterator[str]:
    yield tag("h2", "Decisions")
    rows = [
        (
            f'<a href="#step-{each["number"]}">{each["number"]}</a>',
            text(role_name(each["role"])),
            text(each["kind"]),
            _who(made, with_key=False) + (f": {text(made['reason'])}" if made.get("reason") else ""),
            text(made["time"]),
            _id(made.get("shown") or each["on"]),
        )
        for each in record["approvals"]
        for made in (each["given"] or [each])
    ]
    if not rows:
        yield tag("p", "No person made a decision.", "dim")
        return
    yield table(("step", "role", "kind", "by", "time", "shown"), rows)


def _steps(record: Mapping[str, Any], texts: Mapping[str, Any]) -> Iterator[str]:
    yield tag("h2", "Steps")
    for step, said in zip(record["steps"], texts["steps"], strict=True):
        facts = list(_facts(step))
        parts = [tag("h3", f"{step['number']} {text(role_name(step['role']))}")]
        parts.append(tag("dl", "".join(tag("dt", name) + tag("dd", each) for name, each in facts), "facts"))
        if said["instruction"]:
            parts.append(tag("h4", "Prompt") + markdown(said["instruction"], breaks=True))
        parts.append(tag("h4", "Output") + bounded(said["output"]))
        yield tag("article", "".join(parts), id_=f"step-{step['number']}")


def _facts(step: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "by", text(step["agent"]) + (f", {text(step['model'])}" if step["model"] else "")
    yield "committed", f"{text(step['time'])} by {_who(step)}"
    if step["session"]:
        yield "session", tag("code", text(step["session"]))
    if usage := step["usage"]:
        yield "tokens", text(", ".join(f"{usage[name]:,} {name}" for name in _TOKENS))
    if step["cost"] is not None:
        yield "cost", text(f"${step['cost']}")
    yield "output", _id(step["output"]["sha256"]) + " (SHA-256)"
    yield "commit", tag("code", text(step["commit"]))
    if code := step["code"]:
        yield "code", f"{tag('code', text(code['commit']))} {text(code.get('remote') or '')}"
    if child := step["child"]:
        yield "done by", f"workflow {text(child['workflow']['name'])} {_id(child['head'])}"


def _unknown(report: Mapping[str, Any]) -> Iterator[str]:
    yield tag("h2", "Limits of the evidence")
    yield tag("ul", "".join(tag("li", text(each)) for each in report["unknown"]))
    yield tag(
        "footer",
        tag(
            "p",
            "This page is for reading, and proves nothing. The same report as JSON is compared with the commits by"
            f" verify.py: uwf export {text(report['record']['thread'])} --audit-json FILE",
        ),
    )


def _who(made: Mapping[str, Any], with_key: bool = True) -> str:
    by, signature = made["by"], made["signature"]
    signed = "not signed"
    if signature:
        signer = f" by {signature['signer']}" if signature["signer"] else ""
        key = f", {signature['key'] or 'key unknown'}" if with_key else ""
        signed = f"signature {signature['state']}{signer}{key}"
    return f"{text(by['name'])} &lt;{text(by['email'])}&gt; {tag('span', text(f'({signed})'), 'address')}"


def _id(name: str) -> str:
    return tag("code", text(name[:_WIDTH]), title=name)
