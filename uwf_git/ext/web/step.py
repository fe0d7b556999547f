"""`/thread/ID/step/N` and `/thread/ID/attempt/HASH`: prompt, turns, spending and result.

Contents are untrusted. Oversized parts are cut or not read, and the page names the command that prints them.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from markupsafe import Markup

from uwf_git.ext.web.code import CodeView, code_of_step
from uwf_git.ext.web.page.step import amounts, how_found, plain, turn
from uwf_git.plugin import (
    FORK,
    JOIN,
    REHEARSE,
    USER,
    Attempt,
    CodeVerdict,
    Detail,
    Hash,
    Head,
    LastOutput,
    NotFound,
    Oid,
    Page,
    PageRequest,
    UwfError,
    ancestry,
    approvals_of,
    author_name,
    brief,
    cut_text,
    is_kind,
    markup,
    node_weight,
    parse_attempt,
    parse_detail,
    presented_at,
    prompt_of_step,
    read_turns,
    remark_in,
    report_of,
    role_name,
    spent_by_detail,
    summarise_thread,
    watching,
    weight_in_words,
)

if TYPE_CHECKING:
    from uwf_git.plugin import CommitRow, Instance, Node, Step, ThreadId, TurnRecord

T = TypeVar("T")

TURNS = 200
"""How many turns a page shows at once."""

_SHORT = 200  # characters to which the texts of a large value are cut at most
_ROOM = 20_000  # characters of one text, or one value
_WHOLE = 400_000  # of a requested one
_RENDERED = 60_000  # of a Markdown one
_LARGEST = 8 << 20  # bytes of a node that is read at all
_LONGEST_PAST = 200  # steps up to which a prompt is made without being asked for
_HEAVIEST_PAST = 24 << 20  # bytes of answers and outputs that a prompt is made of
_SHORT_PROMPT = 4_000  # characters of a prompt that is shown without a click
_NOTE, _NOTES = 2_000, 50  # characters of a note, and how many are shown
_LIVE = 20  # turns of a step that is being made, of which the newest are shown


class Part(NamedTuple):
    """A possibly large part: `html` is shown, `left` says what isn't, `name` requests more or is ""; `short`
    needs no fold."""

    html: Markup
    left: str = ""
    name: str = ""
    short: bool = False


class _Cache:
    """A cache of immutable data, for exports."""

    def __init__(self) -> None:
        self.ways: dict[Oid, list[CommitRow]] = {}
        """By a head, the commits that lead to it, newest first, as far back as they were asked for."""


_KNOWN: WeakKeyDictionary[Instance, _Cache] = WeakKeyDictionary()


def _known(instance: Instance) -> _Cache:
    return _KNOWN.setdefault(instance, _Cache())


def size(instance: Instance, node: Hash) -> str:
    return weight_in_words(node_weight(instance, node))


def step_page(instance: Instance, request: PageRequest) -> Page:
    """Show a step. Query: `turns` to skip, and `whole`, the part to show in full. Raises NotFound, Usage,
    StoreDamaged."""
    thread = instance.threads.find(request.parts["id"])
    head = instance.threads.head(thread)
    row = _row(instance, head, request.parts["number"])
    step = instance.store.step(row.node)
    by = _by(instance, step)
    commit = instance.store.repository.commit(Oid(raw=row.oid))
    output = _node(instance, step.output)
    content, detail = _detail(instance, step.detail)
    answered, role = step.role == USER, role_name(step.role)
    remarked = output is not None and remark_in(step.role, output.payload) is not None
    view = _HistoryView(instance, request, detail)
    came = summarise_thread(instance, output.type, output.payload) if output is not None else None
    by_child = content is not None and is_kind(content.type, "step")
    too_large = Part(Markup(""), f"it has {size(instance, step.output)}, too much to show here")
    values = {
        **_common(instance, head, row, by),
        "number": row.number,
        "role": f"{'remark' if remarked else 'answer'} of {author_name(commit.author)}" if answered else role,
        "by": author_name(commit.author) if answered else by,
        "verdict": came.text if came is not None and came.decides else "",
        "made_up": step.agent == REHEARSE,
        "output": too_large if output is None else view.value("output", output.payload),
        "said": view.said(output.payload if output else None, content),
        "raw": view.raw(),
        "heavy": "" if content is not None else size(instance, step.detail),
        "code": code_of_step(instance, thread, detail.code if detail else None),
        "prompt": _prompt(instance, view, request, head, row, detail) if detail and not answered else None,
        "instruction": view.prose("instruction", detail.instruction)
        if detail and detail.instruction
        else None,
        "child": instance.threads.ending_with(step.detail) if by_child else None,
        "approvals": (content and _or_none(lambda: approvals_of(content, instance.store.get))) or (),
        "by_child": by_child,
        "tried": _tried_at(instance, thread, step.prev),
        "committer": author_name(commit.committer),
        "nodes": (("output", step.output), ("detail", step.detail)),
        "asked": request,
        **view.values(),
    }
    return Page("step.html", f"Step {row.number}, {values['role']}", values)


def attempt_page(instance: Instance, request: PageRequest) -> Page:
    """Show a failed attempt. Raises NotFound, Usage, StoreDamaged."""
    thread = instance.threads.find(request.parts["id"])
    head = instance.threads.head(thread)
    tip = instance.attempts.tip(thread)
    wanted = request.parts["node"].upper()
    rows = instance.attempts.rows(tip) if tip else []
    numbered = [(number, row) for number, row in enumerate(rows, 1) if row.node.startswith(wanted)]
    if not numbered:
        raise NotFound(
            f"thread {thread} has no failed attempt {brief(wanted, 20)}",
            f"see: uwf thread attempts {thread}",
        )
    number, row = numbered[-1]
    content = _node(instance, row.node)
    too_large = Part(Markup(""), f"it has {size(instance, row.node)}, too much to show here")
    unread = Attempt(row.start or Hash(""), None, row.role or "", "", "")
    attempt = unread if content is None else parse_attempt(content.payload)
    detail_node, detail = _detail(instance, attempt.detail)
    view = _HistoryView(instance, request, detail)
    printed = (("stdout", attempt.stdout), ("stderr", attempt.stderr))
    heavy = attempt.detail is not None and detail_node is None
    values = {
        **_common(instance, head, row, _by(instance, attempt)),
        "number": number,
        "many": len(rows),
        "role": role_name(attempt.role),
        "error": too_large if content is None else view.text("error", attempt.error),
        "printed": [(name, view.text(name, text)) for name, text in printed if text.strip()],
        "after": instance.store.index_commit(instance.threads.commit_of(attempt.prev)).number
        if attempt.prev
        else 0,
        "said": view.prose("answer", detail.answer) if detail and detail.answer.strip() else None,
        "code": code_of_step(instance, thread, attempt.code),
        "raw": view.raw(),
        "heavy": size(instance, attempt.detail) if heavy and attempt.detail else "",
        "nodes": (("detail", attempt.detail),) if attempt.detail else (),
        "asked": request,
        **view.values(),
    }
    return Page("attempt.html", f"Failed attempt {number}, {values['role']}", values)


def _by(instance: Instance, record: Step | Attempt) -> str:
    def shortened(agent: str) -> str:
        return brief(agent, 100)

    credit = _or_none(lambda: instance.threads.credit(record))
    return credit.text(agent=shortened) if credit is not None else shortened(record.agent)


def _common(instance: Instance, head: Head, row: CommitRow, by: str) -> dict[str, Any]:
    git = f"git --git-dir {shlex.quote(str(instance.location.git_dir))}"
    return {
        "thread": head.thread,
        "task": head.row.title or head.thread,
        "last": head.row.number,
        "by": by,
        "node": row.node,
        "time": row.time,
        "commit": row.oid.hex(),
        "see": f"{git} show {row.oid.hex()}",
    }


class ShownView(NamedTuple):
    """What stands above the choices of a person: the verdicts before, the last output with the text besides, and the
    code, or a line on changes that are not shown."""

    verdicts: tuple[CodeVerdict, ...] = ()
    last: LastOutput | None = None
    output: Part | None = None
    report: Part | None = None
    code: CodeView | None = None
    unshown: str = ""


def shown_view(instance: Instance, head: Head) -> ShownView:
    """Return what is shown at a head. Read errors are raised."""
    shown = presented_at(instance, head)
    if shown is None:
        return ShownView()
    view, last = _HistoryView(instance, PageRequest({}), None), shown.last
    output = report = None
    if last is not None:
        output = Part(Markup(""), last.problem) if last.problem else view.value("output", last.output)
        report = view.prose("report", last.report) if last.report.strip() else None
    verdicts = shown.verdicts if len(shown.verdicts) > 1 else ()
    code = CodeView(shown.code) if shown.code is not None else None
    return ShownView(verdicts, last, output, report, code, shown.unshown)


class _HistoryView:
    """A step's or attempt's history for a page. `detail` is None if missing or too large."""

    def __init__(self, instance: Instance, asked: PageRequest, detail: Detail | None) -> None:
        self._instance = instance
        self._asked = asked
        self._detail = detail

    def values(self) -> Mapping[str, Any]:
        detail = self._detail or Detail("")
        skipped = min(self._asked.number("turns"), len(detail.turns))
        prices = _or_none(lambda: self._instance.config.prices) or {}
        return {
            "model": brief(detail.model or "", 100),
            "session": brief(detail.session or "", 200),
            "usage": detail.usage,
            "took": amounts(spent_by_detail(self._instance, self._detail), prices) if self._detail else (),
            "notes": [cut_text(note, _NOTE) for note in (*how_found(detail), *detail.notes)][:_NOTES],
            "turns": [
                Markup(turn(self._once(record))) if record else None
                for record in read_turns(self._instance, detail.turns[skipped : skipped + TURNS])
            ],
            "many_turns": len(detail.turns),
            "skipped": skipped,
            "page_size": TURNS,
            "patch_room": self._room("patch"),
        }

    def _once(self, record: TurnRecord) -> TurnRecord:
        answer = self._detail.answer.strip() if self._detail else ""
        if answer and record.role == "assistant" and record.text.strip() == answer:
            return record._replace(text="*The answer above.*")
        return record

    def _room(self, name: str) -> int:
        return _WHOLE if self._asked.one("whole") == name else _ROOM

    def _part(self, name: str, text: str, html: str, shown: int) -> Part:
        rest = len(text) - shown
        if rest <= 0:
            return Part(Markup(html), short=len(text) <= _SHORT_PROMPT)
        more = name if self._room(name) < _WHOLE else ""
        return Part(Markup(html), f"{rest:,} of {len(text):,} characters are left out here", more)

    def text(self, name: str, text: str) -> Part:
        room = self._room(name)
        return self._part(name, text, markup.lines(text[:room]), room)

    def prose(self, name: str, text: str) -> Part:
        room = min(self._room(name), _RENDERED)
        return self._part(name, text, markup.answer(text[:room]), room)

    def value(self, name: str, content: Any) -> Part:
        try:
            text = plain(content)
        except RecursionError:
            return Part(Markup(""), "it is nested too deeply to show here")
        room = self._room(name)
        if len(text) <= _ROOM:
            return Part(Markup(markup.value(content)))
        if (
            len(plain(_with_texts_of(content, _SHORT))) > _ROOM
        ):  # not texts take the room, but the number of values
            return self.text(name, text)
        longest = room
        while len(plain(short := _with_texts_of(content, longest))) > room and longest > _SHORT:
            longest //= 2
        rest = len(text) - len(plain(short))
        more = name if rest > 0 and room < _WHOLE else ""
        words = f"{rest:,} of {len(text):,} characters are left out here" if rest > 0 else ""
        return Part(Markup(markup.value(short)), words, more)

    def said(self, output: Any, node: Node | None) -> Part | None:
        if self._detail is None or node is None:
            return None
        answer = self._detail.answer
        rest = report_of(output, node) if len(answer) <= _LARGEST else answer
        return self.prose("answer", rest) if rest.strip() else None

    def raw(self) -> Part | None:
        answer = self._detail.answer if self._detail else ""
        return self.text("raw", answer) if answer.strip() else None


def _with_texts_of(content: Any, longest: int) -> Any:
    """Return a value whose texts have at most so many characters."""
    if isinstance(content, str):
        return content if len(content) <= longest else f"{content[:longest]}…"
    if isinstance(content, Mapping):
        return {key: _with_texts_of(item, longest) for key, item in content.items()}
    return [_with_texts_of(item, longest) for item in content] if isinstance(content, list) else content


def live_turns(instance: Instance, thread: ThreadId) -> tuple[list[Markup], int]:
    """Return the newest turns of the step in progress, and their number."""
    turns = watching.current_turns(instance, thread)
    return [Markup(turn(item)) for item in turns[-_LIVE:]], len(turns)


def _prompt(
    instance: Instance, view: _HistoryView, request: PageRequest, head: Head, row: CommitRow, detail: Detail
) -> Part:
    before = instance.store.index_commit(Oid(raw=row.parent or b""))
    wanted = request.one("whole") == "prompt"
    if row.number > _LONGEST_PAST and not wanted:
        return Part(Markup(""), f"it is made again of the {row.number - 1:,} steps before", "prompt")
    heavy = 0
    for past in instance.threads.past(before.node):
        heavy += node_weight(instance, past.step.output) + node_weight(instance, past.step.detail)
        if heavy > _HEAVIEST_PAST:
            return Part(
                Markup(""),
                f"the steps before have over {weight_in_words(_HEAVIEST_PAST)}, too much to make it again",
            )
    if row.role in (FORK, JOIN):
        return Part(Markup(""), "the engine made it")
    history = instance.threads.history_at(head.thread, before.node)
    if history.workflow.code is not None:
        return Part(Markup(""), "the code of the workflow made it")
    return view.text("prompt", prompt_of_step(instance, history, before, row, detail))


def _row(instance: Instance, head: Head, given: str) -> CommitRow:
    number = int(given) if given.isascii() and given.isdigit() and len(given) < 10 else 0
    if not 0 < number <= head.row.number:
        raise NotFound(f"thread {head.thread} has no step {brief(given, 20)}", f"it has {head.row.number}")
    rows = _known(instance).ways.setdefault(head.commit, [])
    if not rows or rows[-1].number > number:
        begin = Oid(raw=rows.pop().oid) if rows else head.commit
        for row in ancestry(instance.store, begin):
            rows.append(row)
            if row.number <= number:
                break
    return rows[head.row.number - number]


def _node(instance: Instance, node: Hash) -> Node | None:
    return instance.store.get(node) if node_weight(instance, node) <= _LARGEST else None


def _detail(instance: Instance, node: Hash | None) -> tuple[Node | None, Detail | None]:
    content = _node(instance, node) if node is not None else None
    if content is None or not is_kind(content.type, "detail"):
        return content, None
    return content, parse_detail(content.payload)


class AttemptView(NamedTuple):
    """A failed attempt."""

    node: Hash
    error: str
    time: int


def _tried_at(instance: Instance, thread: ThreadId, prev: Hash | None) -> list[AttemptView]:
    tip = instance.attempts.tip(thread)
    views = []
    for row in instance.attempts.rows(tip)[-TURNS:] if tip else ():
        content = _node(instance, row.node)
        attempt = parse_attempt(content.payload) if content is not None else None
        if attempt is not None and attempt.prev == prev:
            views.append(AttemptView(row.node, brief(attempt.error, 300), row.time))
    return views


def _or_none(make: Callable[[], T]) -> T | None:
    try:
        return make()
    except UwfError:
        return None
