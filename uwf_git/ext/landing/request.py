"""The text of a request: what was asked, what changed and by whom, and claims with their evidence.

What agents and strangers wrote stands in code spans, in which a forge looks for no mentions, closing words or links.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.ext.landing.claims import MOST, Claim, Claims, comment, evidence, maker, role_and_result
from uwf_git.ext.landing.effect_records import Effects
from uwf_git.plugin import (
    USER,
    Invalid,
    markdown,
    one_line,
    parse_issue,
    spending_account,
    step_code,
    summary_of,
)

if TYPE_CHECKING:
    from uwf_git.ext.landing.checks import LandingCheck
    from uwf_git.plugin import ForgeRepository, Head, History, Instance, Revision, StepContext

# What a forge makes a link of, by its mark: an issue, a person, a label; or an address.
_MARKS = re.compile(r"[#!](?=[\w\"'])|(?<!\w)[@~%&$](?=[\w\[\"'])|(?<=\bGH)-(?=[0-9])|:(?=//)", re.IGNORECASE)
# A tracker's key, by which an issue is linked or closed there, as SHOP-42; and names that only look like one.
_NO_KEYS = (
    "AES|ANSI|BASE|BIG|COVID|CP|CRC|DDR|DIN|ECMA|EN|ES|FIPS|FP|GB|GMT|GPT|HTTP|IEC|IEEE|INT|IP|IPV|ISO|JDK|JEP|JSR|"
    "KOI8|LATIN|MD|MP|PEP|POSIX|RAID|RFC|RSA|SHA|SHA2|SHA3|SSL|TLS|TOP|UCS|UINT|UTC|UTF|WCAG|WIN|WINDOWS|X86"
)
_KEY = re.compile(rf"(?<![\w-])(?!(?:{_NO_KEYS})-)([A-Z][A-Z0-9_]+)-([1-9][0-9]{{0,8}})(?![\w-])")
# Words in brackets switch a forge's checks off, as [skip ci] does.
_BRACKETS = str.maketrans("[]", "()")
_OWN_TRAILER = re.compile(r"(?:Agent-Logs-Url|Uwf-[A-Za-z]+|Signed-off-by|Co-authored-by): ")
_LONGEST_TITLE = 100
_SHOWN = 12  # letters of a tree or digest
_LONGEST_LINE = 70
_STEPS = 50  # that are listed, the last ones


class RequestText(NamedTuple):
    """A request's title, and its body in Markdown."""

    title: str
    body: str


def title_of(history: History) -> str:
    """Return the title of a request: the issue's, or the first line of the prompt."""
    issue, lines = history.start.issue, history.start.prompt.splitlines()
    line = issue.title if issue is not None else next(filter(str.strip, lines), history.workflow.name)
    return without_links(one_line(line, _LONGEST_TITLE).lstrip("# "))


def without_links(text: str, own_key: str = "") -> str:
    """Return a text of others for a title or a message, in which no forge finds a person to tell, an issue that a merge
    would close, or a word that switches its checks off, and no tracker an issue but the one with `own_key`."""
    text = _KEY.sub(lambda key: key[0] if key[0] == own_key else f"{key[1]} {key[2]}", text)
    return (
        _MARKS.sub(lambda match: f"{match[0].replace('-', '')} ", text)
        .translate(_BRACKETS)
        .replace("***", "")
    )


def message_without_links(message: str, own_key: str) -> str:
    """Return a commit's message as `without_links`, but for the trailers that say who made it."""
    lines = message.splitlines()
    return (
        "\n".join(line if _OWN_TRAILER.match(line) else without_links(line, own_key) for line in lines) + "\n"
    )


def closing_line(instance: Instance, history: History, repository: ForgeRepository | None) -> str:
    """Return the line by which a merge closes the issue of a thread, if that is in the same repository; else one that
    names it, "" without an issue."""
    issue = history.start.issue
    if issue is None:
        return ""
    try:
        is_own = parse_issue(issue.url, instance.config).repository == repository
    except Invalid:  # a host that this machine doesn't know
        is_own = False
    return f"Closes #{issue.number}" if is_own else f"For {issue.url}"


def changes_of(instance: Instance, history: History) -> Iterator[str]:
    """Yield a line on each of the last steps that changed code."""
    for step in history.steps[-_STEPS:]:
        code = step_code(instance, step.detail) if step.role != USER else None
        if code is not None and code.is_changed:
            text = summary_of(instance, history.workflow, step.role, step.output).text
            yield without_links(one_line(f"{step.role}: {text}" if text else step.role, _LONGEST_LINE))


def request_text(
    instance: Instance,
    head: Head,
    history: History,
    code: Revision,
    tree: str,
    checks: Sequence[LandingCheck],
    closes: str,
) -> RequestText:
    """Return the text of a request for a commit with this tree, which was made of a thread's code."""
    claims = claims_on(instance, head, history, tree, checks)
    parts = [
        markdown.quoted(title_of(history)),
        closes,
        # GitLab gives a job the first 2,700 characters of a text, so what a machine reads is at the top.
        comment(claims),
        "## Claims\n\n" + _table(claims.claims),
        _before(code.tree) if code.tree != tree else "",
        "## What changed\n\n" + "\n".join(_changes(instance, history)),
        " · ".join(_origin(instance, head, history)),
    ]
    clean = instance.redactor.text  # of what was stored before it was known to be a secret
    return RequestText(clean(title_of(history))[0], clean("\n\n".join(filter(None, parts)) + "\n")[0])


def claims_on(
    instance: Instance, head: Head, history: History, tree: str, checks: Sequence[LandingCheck]
) -> Claims:
    """Return the claims on a tree: of these checks, and of the thread's last steps that found out about it."""
    nodes = {item.node for item in checks if item.check.has_passed}
    recorded = Effects(instance.store).checks(head.thread)
    own = {node: check for node, check in recorded.items() if node in nodes}
    rows = [claim for claim in evidence(instance, history, own) if claim.tree == tree]
    left_out = max(0, len(rows) - MOST)
    rows = [*rows[: len(own)], *rows[len(own) + left_out :]][:MOST]
    return Claims(head.thread, str(head.commit), tree, tuple(rows))


def _changes(instance: Instance, history: History) -> Iterator[str]:
    steps = [(number, step) for number, step in enumerate(history.steps, 1) if step.role != USER]
    if len(steps) > _STEPS:
        yield f"- … {len(steps) - _STEPS} steps before"
    for number, step in steps[-_STEPS:]:
        made = step_code(instance, step.detail)
        changed = f" (commit {made.commit[:_SHOWN]})" if made is not None and made.is_changed else ""
        yield f"{number}. {words_of_step(instance, history, step)}, by {markdown.code(maker(instance, step))}{changed}"


def words_of_step(instance: Instance, history: History, step: StepContext) -> str:
    """Return a step's role and what it came to, in code spans."""
    return ": ".join(markdown.code(text) for text in role_and_result(instance, history, step) if text)


def _before(tree: str) -> str:
    return f"The thread's own steps found out about tree {markdown.code(tree[:_SHOWN])}: its work was made again since."


def _table(rows: Sequence[Claim]) -> str:
    if not rows:
        return "Nothing was found out about this tree: no check ran on it."
    cells = (
        (
            markdown.code(claim.what),
            markdown.code(claim.by),
            "" if claim.step is None else str(claim.step),
            markdown.code(claim.tree[:_SHOWN]),
            markdown.code(claim.log),
        )
        for claim in rows
    )
    return markdown.table(("claim", "by", "step", "tree", "log, SHA-256"), cells)


def _origin(instance: Instance, head: Head, history: History) -> Iterator[str]:
    yield f"Thread {markdown.code(head.thread)} of workflow {markdown.code(history.workflow.name)}"
    yield f"record {markdown.code(str(head.commit)[:_SHOWN])}"
    spent = spending_account(instance, head).spent
    if cost := spent.money(instance.config.prices).cost:
        yield f"${cost:,.2f}"
