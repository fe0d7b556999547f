"""Claims of a request: what was found out about its tree, each with its evidence.

A request's text has them for machines too, as JSON in a comment on a line of its own, whose first key is the thread:

    <!-- uwf claims {"thread":"…","record":"…","tree":"…","claims":[{"what":"…","by":"…","step":2,…}]} -->

In it each character that could end the comment, or that a forge looks for, is an escape of JSON. The text of a request
may be anybody's: nothing in it is believed that the thread's nodes don't say.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.ext.landing.landing_steps import AGENT
from uwf_git.plugin import (
    HUMAN,
    OBJECT_ID,
    USER,
    Hash,
    Invalid,
    Oid,
    ThreadId,
    UwfError,
    one_line,
    parse_detail,
    parse_thread_id,
    step_code,
    summary_of,
)

if TYPE_CHECKING:
    from uwf_git.ext.landing.effect_records import Check
    from uwf_git.plugin import History, Instance, StepContext

LARGEST_TEXT = 1 << 20
"""Bytes of a request's text."""
MOST = 30
"""Claims that a request has."""
LANDING = "uwf land"
"""Who makes the checks of a landing."""

_LARGEST = 64 << 10  # characters of the comment
_LONGEST_WHAT, _LONGEST_BY = 100, 60
_BEGIN = re.compile(r"^<!-- uwf claims ", re.MULTILINE)
_END = " -->"
_SAFE = r'[^A-Za-z0-9 ,.:"{}\[\]\\]'
_FORMS = {"record": OBJECT_ID, "tree": OBJECT_ID, "node": "[0-9A-HJKMNP-TV-Z]{13}", "log": "[0-9a-f]{64}"}


class Claim(NamedTuple):
    """A finding about a tree: by a step, or by landing if `step` is None. `node` is the StepNode or the Check, `log`
    the SHA-256 of what was printed or said."""

    what: str
    by: str
    step: int | None
    node: Hash
    tree: str
    log: str

    @property
    def place(self) -> str:
        return f"check {self.node}" if self.step is None else f"step {self.step}"


class Claims(NamedTuple):
    """The claims of a request on a tree; `record` is the commit of the thread's head."""

    thread: ThreadId
    record: str
    tree: str
    claims: tuple[Claim, ...]


class Refusal(NamedTuple):
    """Why claims are not taken. `code` is stable."""

    code: str
    message: str


class Judged(NamedTuple):
    """Judged claims: those that were read, `refusals` of them all, and one of each claim, None if it holds."""

    claims: Claims | None
    refusals: tuple[Refusal, ...] = ()
    verdicts: tuple[Refusal | None, ...] = ()

    @property
    def holds(self) -> bool:
        return not self.refusals and not any(self.verdicts)

    def as_json(self) -> dict[str, Any]:
        thread, record, tree, claims = self.claims or (None, None, None, ())
        verdicts = self.verdicts or (None,) * len(claims)
        rows = [
            {**claim._asdict(), "refused": verdict._asdict() if verdict else None}
            for claim, verdict in zip(claims, verdicts, strict=True)
        ]
        refused = [item._asdict() for item in self.refusals]
        return {"thread": thread, "record": record, "tree": tree, "claims": rows, "refused": refused}


class _Unreadable(Exception):
    """What is wrong with the form of a comment."""


def evidence(instance: Instance, history: History, checks: Mapping[Hash, Check]) -> Iterator[Claim]:
    """Yield the findings of checks, and of the thread's steps that changed no code, as claims on the trees that they
    were made on."""
    from uwf_git.ext.landing.effect_records import Effects, digest_of

    effects = Effects(instance.store)
    for node, check in checks.items():
        what = one_line(f"{shlex.join(check.command)} {check.end}", _LONGEST_WHAT)
        yield Claim(what, LANDING, None, node, check.tree, digest_of(effects.log(check)))
    for number, step in enumerate(history.steps, 1):
        code = step_code(instance, step.detail) if step.role != USER and step.agent != AGENT else None
        if code is not None and not code.is_changed:
            what = one_line(": ".join(filter(None, role_and_result(instance, history, step))), _LONGEST_WHAT)
            by = one_line(maker(instance, step), _LONGEST_BY)
            yield Claim(what, by, number, step.hash, code.tree, digest_of(instance.threads.answer(step)))


def role_and_result(instance: Instance, history: History, step: StepContext) -> tuple[str, str]:
    """Return a step's role, and the summary of its output."""
    return step.role, summary_of(instance, history.workflow, step.role, step.output).text


def maker(instance: Instance, step: StepContext) -> str:
    """Return who made a step: a person by the name on the commit, or an agent with its model."""
    if step.agent == HUMAN:
        commit = instance.store.repository.commit(instance.threads.commit_of(step.hash))
        return commit.committer.rsplit(" <", 1)[0]
    content: Any = instance.store.get(step.detail)
    model = parse_detail(content.payload).model if "model" in content.payload else None
    return step.by + (f", {model}" if model else "")


# The comment


def comment(claims: Claims) -> str:
    """Return the line of a request's text that a machine reads, "" without claims."""
    if not claims.claims:
        return ""
    rows = [{key: item for key, item in claim._asdict().items() if key != "tree"} for claim in claims.claims]
    text = json.dumps({**claims._asdict(), "claims": rows}, separators=(",", ":"))
    escaped = re.sub(_SAFE, lambda match: f"\\u{ord(match[0]):04x}", text)
    return f"<!-- uwf claims {escaped}{_END}"


def read_claims(text: str) -> Claims | Refusal | None:
    """Return the claims of a request's text, None without any, or why they can't be read."""
    begins = [match.end() for match in _BEGIN.finditer(text)]
    if not begins:
        return None
    if len(begins) > 1:
        return Refusal("claims-twice", f"the request has claims {len(begins)} times")
    end = text.find(_END, begins[0])
    if end < 0:
        return Refusal("claims-truncated", "the claims have no end")
    if end - begins[0] > _LARGEST:
        return Refusal("claims-too-large", f"the claims have over {_LARGEST >> 10} KiB")
    try:
        return _parsed(json.loads(text[begins[0] : end], object_pairs_hook=_once))
    except (_Unreadable, Invalid, RecursionError, ValueError) as error:
        why = error.args[0] if isinstance(error, _Unreadable) else "they are not JSON as uwf writes it"
        return Refusal("claims-unreadable", f"the claims can't be read: {why}")


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise _Unreadable("a key is there twice")
    return dict(pairs)


def _parsed(value: Any) -> Claims:
    thread, record, tree, rows = _fields(value, Claims._fields).values()
    if not isinstance(rows, list) or not 0 < len(rows) <= MOST:
        raise _Unreadable(f"there are none, or over {MOST}")
    names = tuple(name for name in Claim._fields if name != "tree")
    claims = tuple(Claim(tree=tree, **_fields(row, names)) for row in rows)
    return Claims(parse_thread_id(thread), record, tree, claims)


def _fields(value: Any, names: Sequence[str]) -> dict[str, Any]:
    if not isinstance(value, dict) or set(value) != set(names):
        raise _Unreadable("they have other fields")
    for name in names:
        item, form = value[name], _FORMS.get(name, r"[^\x00-\x1f]{0,200}")
        if name == "step":
            is_right = item is None or (type(item) is int and 0 < item < 1 << 53)
        else:
            is_right = name == "claims" or (isinstance(item, str) and bool(re.fullmatch(form, item)))
        if not is_right:
            raise _Unreadable(f"{name} has another form")
    return {name: value[name] for name in names}


# Judging


def judge(instance: Instance, claims: Claims, tree: str) -> Judged:
    """Hold claims against the thread as this store has it, verified, and the tree under review."""
    from uwf_git.ext.landing.effect_records import Effects

    thread = claims.thread
    try:
        history = instance.threads.history(instance.threads.head(thread))
        checks = Effects(instance.store).checks(thread)
        facts = {fact.node: fact for fact in evidence(instance, history, checks)}
    except UwfError as error:
        why = f"thread {thread} is not in the repository: {error.message}"
        return Judged(claims, (Refusal("claims-no-thread", why),))
    refusals = []
    if not _has_commit(instance, history, claims.record):
        refusals.append(
            Refusal("claims-other-record", f"{claims.record[:12]} is no commit of thread {thread}")
        )
    nodes = [claim.node for claim in claims.claims]
    verdicts = (_verdict(claim, facts.get(claim.node), nodes, tree, thread) for claim in claims.claims)
    return Judged(claims, tuple(refusals), tuple(verdicts))


def _has_commit(instance: Instance, history: History, commit: str) -> bool:
    try:
        row = instance.store.index_commit(Oid(hex=commit))
    except (UwfError, ValueError):
        return False
    return row.kind == "step" and row.node in {step.hash for step in history.steps}


def _verdict(
    claim: Claim, fact: Claim | None, nodes: Sequence[Hash], tree: str, thread: ThreadId
) -> Refusal | None:
    place = f"{claim.place} of thread {thread}"
    if nodes.count(claim.node) > 1:
        return Refusal("claim-twice", f"{place} is claimed {nodes.count(claim.node)} times")
    if fact is None and claim.step is None:
        return Refusal(
            "claim-no-log", f"{place} is not recorded here, and so is no log of it: refs/uwf/effects/{thread}"
        )
    if fact is None or fact.step != claim.step:
        return Refusal("claim-no-step", f"{claim.node} is no {place} that found out about a tree")
    if fact.tree != tree or claim.tree != tree:
        other = fact.tree if fact.tree != tree else claim.tree
        return Refusal("claim-other-tree", f"{place} is about tree {other[:12]}, and not about {tree[:12]}")
    if fact.log != claim.log:
        return Refusal("claim-other-log", f"the log of {place} has the SHA-256 {fact.log}")
    if fact != claim:
        return Refusal("claim-otherwise", f"{place} says: {fact.what}, by {fact.by}")
    return None
