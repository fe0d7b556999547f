"""A step or a failed attempt: its result, changes, turns, prompt and record, each of bounded size."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from uwf_git.api.cockpit.patch import LINES, patch_files
from uwf_git.api.cockpit.rows import rows_of
from uwf_git.api.cockpit.run import brief, name_of
from uwf_git.api.cockpit.weight import LARGEST, TURNS, in_words, read_turns, spent_by, weight
from uwf_git.api.spending import amounts_value
from uwf_git.approvals.records import unsigned
from uwf_git.base.errors import NotFound, StoreDamaged, UwfError
from uwf_git.base.text import cut
from uwf_git.engine.outcome import summary
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import REHEARSE, Attempt, parse_attempt, parse_detail, remark_in
from uwf_git.format.types import USER, is_kind
from uwf_git.git.repository import Oid
from uwf_git.store.pages import approvals_of, report_of
from uwf_git.workflow.turn import is_engines

if TYPE_CHECKING:
    from uwf_git.engine.spending import Totals
    from uwf_git.format.approvals import Approval
    from uwf_git.format.kinds import Detail, Revision, Step
    from uwf_git.format.node import Node
    from uwf_git.store.attempts import FailedAttempt
    from uwf_git.store.history import Head
    from uwf_git.store.index import CommitRow
    from uwf_git.store.instance import Instance

TABS = ("result", "changes", "turns", "prompt", "record")
"""The parts of a step."""

_SHORT = 200  # characters to which the texts of a large value are cut at most
_ROOM = 20_000  # characters of one text, or one value
_WHOLE = 400_000  # of a requested one
_RENDERED = 60_000  # of a Markdown one
_LONGEST_PAST = 200  # steps up to which a prompt is made without being asked for
_HEAVIEST_PAST = 24 << 20  # bytes of answers and outputs that a prompt is made of
_SHORT_PROMPT = 4_000  # characters of a prompt that needs no fold
_END = 4_000  # of an attempt's answer in a list
_NOTE, _NOTES = 2_000, 50  # characters of a note, and how many are shown

View = dict[str, Any]
T = TypeVar("T")
U = TypeVar("U")


class Wanted(NamedTuple):
    """What is shown of a step: the `tabs`, its turns after the first `turns`, and one part in full, by its name. With
    `turns_room`, turns are cut to so many characters in all, but none to less than 200."""

    tabs: Collection[str] = TABS
    turns: int = 0
    whole: str = ""
    turns_room: int = 0

    def room(self, name: str) -> int:
        """Return how many characters are shown of a part."""
        return _WHOLE if self.whole == name else _ROOM

    def text(self, name: str, text: str, most: int = _WHOLE) -> View:
        """Return a text as a part: what is shown of it, what is `left` out in words, and whether there is `more`."""
        shown = min(self.room(name), most)
        part = {"text": text[:shown], "left": "", "name": "", "short": len(text) <= _SHORT_PROMPT}
        if (rest := len(text) - shown) > 0:
            part |= _rest(rest, len(text)) | {"name": name if self.room(name) < _WHOLE else ""}
        return part

    def prose(self, name: str, text: str) -> View:
        """Return Markdown as a part."""
        return {**self.text(name, text, _RENDERED), "prose": True}

    def value(self, name: str, content: Any) -> View:
        """Return a JSON value as a part: its texts are cut, or it is a text itself if it has many values."""
        try:
            text = plain(content)
        except RecursionError:
            return absent_part("it is nested too deeply to show here")
        part: View = {"value": content, "left": "", "name": "", "short": True}
        if len(text) <= _ROOM:
            return part
        if len(plain(_with_texts_of(content, _SHORT))) > _ROOM:
            return self.text(name, text)
        room = longest = self.room(name)
        while len(plain(short := _with_texts_of(content, longest))) > room and longest > _SHORT:
            longest //= 2
        part["value"] = short
        if (rest := len(text) - len(plain(short))) > 0:
            part |= _rest(rest, len(text)) | {"name": name if room < _WHOLE else ""}
        return part


def absent_part(why: str) -> View:
    """Return a part of which nothing is shown."""
    return {"text": "", "left": why, "name": "", "short": False}


def _rest(rest: int, whole: int) -> View:
    return {"left": f"{rest:,} of {whole:,} characters are left out here"}


def step(instance: Instance, head: Head, number: str | int, wanted: Wanted = Wanted()) -> View:  # noqa: B008
    """Return a step, with those of its parts that are wanted:

    result    `output`, the `answer` beside it, and `raw`, the answer as it came
    changes   the files with the numbered lines of their patch, as `patch_files`
    turns     `items` after those `skipped`, None for one that is too large, and how `many` there are
    prompt    the `instruction` of the edge, and the whole `text`, which is made again of the history
    record    session, usage, notes, and the hashes of its nodes and commit

    `took` has seconds, tokens, cost and unpriced tokens; `unshown` says why an agent's step has no changes of its own.
    Raises NotFound, StoreDamaged."""
    row = _row(instance, head, str(number))
    record = instance.store.step(row.node)
    commit = instance.store.repository.commit(Oid(raw=row.oid))
    output = _node(instance, record.output)
    content, detail = _detail(instance, record.detail)
    came = summary(instance, output.type, output.payload) if output is not None else None
    kind = "answer" if record.role == USER else "step"
    if output is not None and remark_in(record.role, output.payload) is not None:
        kind = "remark"
    by_child = content is not None and is_kind(content.type, "step")
    by = name_of(commit.author) if record.role == USER else _by(instance, record)
    approvals: Sequence[Approval] = ()
    names_alone: Sequence[Approval] = ()
    if content is not None:
        approvals = _or(lambda: approvals_of(content, instance.store.get), ())
        names_alone = _or(lambda: unsigned(instance.store, row.node, content), ())
    view = {
        **_common(instance, head, row, detail, by),
        "kind": kind,
        "number": row.number,
        "role": record.role,
        "agent": record.agent,
        "rehearsed": record.agent == REHEARSE,
        "verdict": came.text if came is not None else "",
        "decides": came is not None and came.decides,
        "byChild": by_child,
        "child": instance.threads.ending_with(record.detail) if by_child else None,
        "approvals": [
            {"by": str(given.by), "unseen": given.is_unseen, "signed": given not in names_alone}
            for given in approvals
        ],
        "tried": _tried_at(instance, head.thread, record.prev),
        "hasPrompt": detail is not None and kind == "step" and not is_engines(record.role),
        "detail": record.detail,
        "heavy": "" if content is not None else size(instance, record.detail),
    }
    if view["hasPrompt"]:
        view["unshown"] = _unshown(instance, head, view)
    if "result" in wanted.tabs:
        large = absent_part(f"it has {size(instance, record.output)}, too much to show here")
        view["result"] = {
            "output": large if output is None else wanted.value("output", output.payload),
            "answer": _said(wanted, detail, output, content),
            "raw": _raw(wanted, detail),
        }
    if "prompt" in wanted.tabs and detail is not None and view["hasPrompt"]:
        view["prompt"] = {
            "instruction": wanted.prose("instruction", detail.instruction) if detail.instruction else None,
            "text": _prompt(instance, wanted, head, row, detail),
        }
    nodes = {"output": record.output, "detail": record.detail}
    return view | _parts(instance, head.thread, wanted, detail, nodes)


def attempt(instance: Instance, head: Head, node: str, wanted: Wanted = Wanted()) -> View:  # noqa: B008
    """Return a failed attempt by the beginning of its hash, as `step`, with its `error`, what it had `printed` and the
    number of the step that it came `after`. Raises NotFound, StoreDamaged."""
    tip = instance.attempts.tip(head.thread)
    rows = instance.attempts.rows(tip) if tip else []
    numbered = [(number, row) for number, row in enumerate(rows, 1) if row.node.startswith(node.upper())]
    if not numbered:
        raise NotFound(
            f"thread {head.thread} has no failed attempt {brief(node.upper(), 20)}",
            f"see: uwf thread attempts {head.thread}",
        )
    number, row = numbered[-1]
    content = _node(instance, row.node)
    unread = Attempt(row.start or Hash(""), None, row.role or "", "", "")
    tried = unread if content is None else parse_attempt(content.payload)
    detail_node, detail = _detail(instance, tried.detail)
    is_heavy = tried.detail is not None and detail_node is None
    after = instance.store.index_commit(instance.threads.commit_of(tried.prev)).number if tried.prev else 0
    view = {
        **_common(instance, head, row, detail, _by(instance, tried), failed=True),
        "kind": "attempt",
        "number": number,
        "many": len(rows),
        "after": after,
        "role": tried.role,
        "agent": tried.agent,
        "rehearsed": False,
        "verdict": brief(tried.error, 300),
        "decides": False,
        "byChild": False,
        "child": None,
        "approvals": [],
        "tried": [],
        "hasPrompt": False,
        "detail": tried.detail,
        "heavy": size(instance, tried.detail) if is_heavy and tried.detail else "",
        "code": tried.code.payload() if tried.code is not None else None,
    }
    view["unshown"] = _unshown(instance, head, view)
    if "result" in wanted.tabs:
        large = absent_part(f"it has {size(instance, row.node)}, too much to show here")
        printed = (("stdout", tried.stdout), ("stderr", tried.stderr))
        view["result"] = {
            "error": large if content is None else wanted.text("error", tried.error),
            "printed": [(name, wanted.text(name, text)) for name, text in printed if text.strip()],
            "answer": wanted.prose("answer", detail.answer) if detail and detail.answer.strip() else None,
            "raw": _raw(wanted, detail),
        }
    nodes = {"detail": tried.detail} if tried.detail else {}
    return view | _parts(instance, head.thread, wanted, detail, nodes, tried.code)


def answer_of_attempt(instance: Instance, tried: FailedAttempt) -> str:
    """Return the end of what the agent of a failed attempt answered, "" if nothing, or too much to read."""
    _, detail = _or(lambda: _detail(instance, tried.detail), (None, None))
    return detail.answer.strip()[-_END:] if detail is not None else ""


def _common(
    instance: Instance, head: Head, row: CommitRow, detail: Detail | None, by: str, failed: bool = False
) -> View:
    git = f"git --git-dir {shlex.quote(str(instance.location.git_dir))}"
    code = detail.code if detail is not None else None
    return {
        "thread": head.thread,
        "task": head.row.title or head.thread,
        "last": head.row.number,
        "node": row.node,
        "by": by,
        "model": brief(detail.model or "", 100) if detail is not None else "",
        "took": took(instance, spent_by(instance, detail, failed) if detail is not None else None),
        "time": row.time,
        "commit": row.oid.hex(),
        "see": f"{git} show {row.oid.hex()}",
        "code": code.payload() if code is not None else None,
        "unshown": "",
        "manyTurns": len(detail.turns) if detail is not None else 0,
    }


def _unshown(instance: Instance, head: Head, view: View) -> str:
    from uwf_git.engine.presented import unshown_changes

    return "" if view["code"] is not None else _or(lambda: unshown_changes(instance, head), "")


def spent_by_node(instance: Instance, node: Hash) -> View:
    """Return as `spent` the time, tokens and cost of a step or failed attempt; nulls if they are unknown."""
    content = instance.store.get(node)
    _, detail = _detail(instance, content.payload.get("detail"))
    failed = is_kind(content.type, "attempt")
    return {"spent": took(instance, spent_by(instance, detail, failed) if detail is not None else None)}


def took(instance: Instance, spent: Totals | None) -> View:
    """Return a spending as JSON; nulls if it is unknown."""
    return amounts_value(spent, instance.known_prices)


def _parts(
    instance: Instance,
    thread: ThreadId,
    wanted: Wanted,
    detail: Detail | None,
    nodes: Mapping[str, Hash],
    code: Revision | None = None,
) -> View:
    """Return the parts that steps and attempts have alike."""
    view: View = {}
    if "turns" in wanted.tabs:
        turns = detail.turns if detail is not None else ()
        skipped = min(wanted.turns, len(turns))
        items = [
            None if turn is None else {**turn._asdict(), "usage": turn.usage and turn.usage._asdict()}
            for turn in read_turns(instance, turns[skipped : skipped + TURNS])
        ]
        answer = detail.answer.strip() if detail is not None else ""
        if wanted.turns_room:
            longest = max(_SHORT, wanted.turns_room // (len(items) + 1))
            items, answer = [item and _cut_turn(item, longest) for item in items], cut(answer, longest)
        view["turns"] = {"many": len(turns), "skipped": skipped, "items": items, "answer": answer}
    code = code or (detail.code if detail is not None else None)
    if "changes" in wanted.tabs and code is not None:
        view["changes"] = changes_view(instance, thread, code)
    if "record" in wanted.tabs:
        notes = (*how_found(detail), *detail.notes) if detail is not None else ()
        view["record"] = {
            "session": brief(detail.session or "", 200) if detail is not None else "",
            "usage": detail.usage._asdict() if detail is not None and detail.usage is not None else None,
            "notes": [cut(note, _NOTE) for note in notes][:_NOTES],
            "nodes": dict(nodes),
        }
    return view


def _cut_turn(turn: View, longest: int) -> View:
    """Return a turn whose text, arguments and result have at most so many characters; a value becomes a text then."""
    short = {
        name: cut(text, longest)
        for name in ("text", "arguments", "result")
        if turn[name] is not None and len(text := plain(turn[name])) > longest
    }
    return {**turn, **short}


def changes_view(instance: Instance, thread: ThreadId, code: Revision, with_lines: bool = True) -> View:
    """Return the changes of a Revision: why they are absent, else the files, with numbered lines or without any."""
    from uwf_git.workspaces.changes import changes

    seen = changes(instance, thread, code, with_patch=with_lines)
    files = (
        patch_files(seen.patch, seen.files, LINES) if with_lines else [file.as_json() for file in seen.files]
    )
    return {"base": code.base, "commit": code.commit, "absence": seen.absence, "files": files}


def how_found(detail: Detail) -> Sequence[str]:
    """Return a note on an output that the agent did not write as such."""
    if detail.extraction.startswith("model:"):
        return [f"its output was read out of the answer by {detail.extraction.removeprefix('model:')}"]
    is_corrected = detail.extraction == "correction"
    return ["its output was written when it was asked to correct itself"] if is_corrected else []


def _said(wanted: Wanted, detail: Detail | None, output: Node | None, content: Node | None) -> View | None:
    if detail is None or content is None:
        return None
    payload = output.payload if output is not None else None
    rest = report_of(payload, content) if len(detail.answer) <= LARGEST else detail.answer
    return wanted.prose("answer", rest) if rest.strip() else None


def _raw(wanted: Wanted, detail: Detail | None) -> View | None:
    answer = detail.answer if detail is not None else ""
    return wanted.text("raw", answer) if answer.strip() else None


def _prompt(instance: Instance, wanted: Wanted, head: Head, row: CommitRow, detail: Detail) -> View:
    try:
        return _prompt_again(instance, wanted, head, row, detail)
    except UwfError as error:  # damage of a step before
        return absent_part(f"it cannot be made again: {error.message}")


def _prompt_again(instance: Instance, wanted: Wanted, head: Head, row: CommitRow, detail: Detail) -> View:
    from uwf_git.engine.past_prompt import prompt_of_step

    before = instance.store.index_commit(Oid(raw=row.parent or b""))
    if row.number > _LONGEST_PAST and wanted.whole != "prompt":
        return {**absent_part(f"it is made again of the {row.number - 1:,} steps before"), "name": "prompt"}
    heavy = 0
    for past in instance.threads.past(before.node):
        heavy += weight(instance, past.step.output) + weight(instance, past.step.detail)
        if heavy > _HEAVIEST_PAST:
            return absent_part(
                f"the steps before have over {in_words(_HEAVIEST_PAST)}, too much to make it again"
            )
    history = instance.threads.history_at(head.thread, before.node)
    if history.workflow.code is not None:
        return absent_part("the code of the workflow made it")
    return wanted.text("prompt", prompt_of_step(instance, history, before, row, detail))


def _row(instance: Instance, head: Head, text: str) -> CommitRow:
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    if not 0 < number <= head.row.number:
        raise NotFound(f"thread {head.thread} has no step {brief(text, 20)}", f"it has {head.row.number}")
    rows, problem = rows_of(instance, head)
    place = head.row.number - number + 1
    if place > len(rows):
        raise StoreDamaged(problem, "uwf doctor --fix")
    return rows[-place]


def _by(instance: Instance, record: Step | Attempt) -> str:
    def shortened(agent: str) -> str:
        return brief(agent, 100)

    credit = _or(lambda: instance.threads.credit(record), None)
    return credit.text(agent=shortened) if credit is not None else shortened(record.agent)


def _node(instance: Instance, node: Hash) -> Node | None:
    return instance.store.get(node) if weight(instance, node) <= LARGEST else None


def _detail(instance: Instance, node: Hash | None) -> tuple[Node | None, Detail | None]:
    content = _node(instance, node) if node is not None else None
    if content is None or not is_kind(content.type, "detail"):
        return content, None
    return content, parse_detail(content.payload)


def _tried_at(instance: Instance, thread: ThreadId, prev: Hash | None) -> list[View]:
    """Return the failed attempts after a step; those that can't be read are left out."""
    tip = instance.attempts.tip(thread)
    views = []
    for row in instance.attempts.rows(tip)[-TURNS:] if tip else ():
        content = _or(partial(_node, instance, row.node), None)
        tried = parse_attempt(content.payload) if content is not None else None
        if tried is not None and tried.prev == prev:
            views.append({"node": row.node, "error": brief(tried.error, 300), "time": row.time})
    return views


def _with_texts_of(content: Any, longest: int) -> Any:
    """Return a value whose texts have at most so many characters."""
    if isinstance(content, str):
        return content if len(content) <= longest else f"{content[:longest]}…"
    if isinstance(content, Mapping):
        return {key: _with_texts_of(item, longest) for key, item in content.items()}
    return [_with_texts_of(item, longest) for item in content] if isinstance(content, list) else content


def plain(content: Any) -> str:
    """Return a text as it is, another value as JSON."""
    import json

    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, indent=2)


def size(instance: Instance, node: Hash) -> str:
    """Return a node's size in words. Raises NotFound."""
    return in_words(weight(instance, node))


def _or(make: Callable[[], T], otherwise: U) -> T | U:
    try:
        return make()
    except UwfError:
        return otherwise
