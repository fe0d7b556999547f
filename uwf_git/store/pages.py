"""The README.md pages of threads, prompts, steps, attempts, suites and cases.

Each is a pure function of nodes, so `verify` generates it again. A page says a thing once: an answer that
begins with its output is shown as that output and the rest of the text, without code blocks that repeat the
output; the node has it verbatim.

A thread's page has its state and a line for each step since the last hundred. The lines of a full hundred
move to `steps/00xx.md`, so a step costs the same at 5,000 as at 5.

git prints pages unchanged, so terminal control characters are written out.
"""

import functools
import json
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.markdown import below, code, inline, output, question, table
from uwf_git.base.text import counted, fenced, harmless, iso, one_line
from uwf_git.format.credit import Credit
from uwf_git.format.ids import Hash
from uwf_git.format.kinds import (
    REHEARSE,
    Attempt,
    Revision,
    StepContext,
    answer_in,
    asks_human,
    parse_detail,
    parse_start,
    parse_step,
    parse_workflow,
    reply_in,
    status_of,
)
from uwf_git.format.node import Node
from uwf_git.format.types import END, ENDS, FAIL, USER, is_kind, next_name, role_name
from uwf_git.store.layout import node_file, step_folder

if TYPE_CHECKING:
    from uwf_git.format.approvals import Approval

HUNDRED = 100
_LONGEST_OUTCOME = 2000  # characters of the last output that the page of an ended thread repeats
_LONGEST_VERDICT = 60
_TITLES = ("summary", "title", "answer")  # fields that say best what an output comes to

_TABLE = table(("step", "what came of it", "by"), ()) + "\n"
_STEPS = f"## Steps\n\n{_TABLE}"
_LANGUAGES = frozenset({"", "json", "yaml", "yml", "markdown", "md"})
_COPIES = frozenset({"", "text"})
_NOTHING = frozenset({"", "~", "null", "Null", "NULL"})


class PageStep(NamedTuple):
    """A step for a page. `child` is the name of the sub-workflow that made it, or ""; `approvals` are those that
    its detail refers to, and `unsigned` those of them whose commit nobody signed."""

    number: int
    step: StepContext
    detail: Node
    child: str = ""
    approvals: tuple["Approval", ...] = ()
    unsigned: tuple["Approval", ...] = ()

    @classmethod
    def of(cls, number: int, step: StepContext, detail: Node, get: Callable[[Hash], Node]) -> "PageStep":
        """Read what its page needs besides. Raises as `get` does."""
        return cls(number, step, detail, child_of(detail, get), approvals_of(detail, get))


class PageState(NamedTuple):
    """A thread's state after a step: `title` is the prompt's first line, `rehearsed` counts generated steps,
    `then` is the next role, $END or $FAIL, None if unknown or a question."""

    title: str
    workflow: str
    number: int
    rehearsed: int
    last: StepContext
    then: str | None


# Outputs and answers


def verdict(value: Any) -> str:
    """Summarise an output: its question, status, first boolean or first short text; "" if none."""
    word, _ = ruling(value)
    if word:
        return word
    if isinstance(value, str):
        return one_line(value, _LONGEST_VERDICT)
    if isinstance(value, Mapping):
        keys = [*(key for key in _TITLES if key in value), *sorted(value)]
        texts = (value[key] for key in keys if isinstance(value[key], str) and value[key].strip())
        return one_line(next(texts, ""), _LONGEST_VERDICT)
    return ""


def ruling(value: Any) -> tuple[str, str]:
    """Return an output's own verdict (question, status or first boolean) and the field that has it, both ""
    if none."""
    if not isinstance(value, Mapping) or reply_in(value) is not None:
        return "", ""
    if asks_human(value):
        question = value.get("question")
        return (f"asks: {one_line(question, _LONGEST_VERDICT)}" if isinstance(question, str) else "asks"), ""
    status = status_of(value)
    if status:
        shown = one_line(
            status.removeprefix("$").lower() if status.startswith("$") else status, _LONGEST_VERDICT
        )
        key = "$status" if isinstance(value.get("$status"), str) else "status"
        return shown, key if shown == status else ""
    key = next((key for key in sorted(value) if isinstance(value[key], bool)), "")
    if not key:
        return "", ""
    return one_line(key if value[key] else f"not {key}", _LONGEST_VERDICT), key if len(key) < 50 else ""


def answer_of(value: Any, detail_type: str, detail: Any) -> str:
    """Return an agent's verbatim answer; the output as JSON if its detail has none."""
    answer = answer_in(detail_type, detail)
    if answer is not None:
        return answer
    return f"```json\n{json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True)}\n```\n"


def report_of(value: Any, detail: Node) -> str:
    """Return an agent's text besides its output, "" if none."""
    answer = answer_in(detail.type, detail.payload)
    if answer is None:
        return ""
    text = _unified(answer.removeprefix("\ufeff")).strip("\n").rstrip()
    values = value.values() if isinstance(value, Mapping) else (value,)
    if any(isinstance(item, str) and item.strip() == text.strip() for item in values):
        return ""
    rest = _without_output(text, value)
    if rest is None:
        return _shielded(text)
    texts = {_unified(item).strip() for item in values if isinstance(item, str)}
    return _without_copies(rest, texts - {""}).strip("\n").rstrip()


def _unified(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _without_copies(text: str, shown: Container[str]) -> str:
    lines = text.split("\n")
    ends = [line.rstrip() for line in lines]
    final = {line: number for number, line in enumerate(ends) if line[:3] == "```"}
    kept: list[str] = []
    at = 0
    while at < len(lines):
        fence = _fence_of(lines[at], _COPIES)
        last = ends.index(fence, at + 1) if final.get(fence, -1) > at else None
        block = lines[at : at + 1 if last is None else last + 1]
        if last is None or "\n".join(block[1:-1]).strip() not in shown:
            kept += block
        at += len(block)
    return "\n".join(kept)


def _without_output(text: str, value: Any) -> str | None:
    stripped = text.strip()
    if stripped[:1] in ("{", "[", '"') and _says(stripped, value):
        return ""
    if not isinstance(value, Mapping):
        return None
    lines = text.split("\n")
    ruled = next((number for number, line in enumerate(lines) if line.rstrip() == "---"), None)
    fence = next((number for number, line in enumerate(lines) if _fence_of(line)), None)
    for at in sorted(number for number in (ruled, fence) if number is not None):
        if (rest := _without_block(lines, at, value)) is not None:
            return "\n".join(rest)
    return None


def _without_block(lines: Sequence[str], at: int, value: Mapping[str, Any]) -> list[str] | None:
    fence = _fence_of(lines[at])
    first = at + 1 if fence else at
    ends = {fence} if fence else set()
    if first < len(lines) and lines[first].rstrip() == "---":
        ends |= {"---", "..."}
        first += 1
    last = next((number for number in range(first, len(lines)) if lines[number].rstrip() in ends), None)
    if last is None:
        return None
    inside, rest = lines[first:last], list(lines[last + 1 :])
    if not _says("\n".join(inside), value) and not _is_block_of(inside, value):
        return None
    if fence and lines[last].rstrip() != fence:
        # The fence is around the block alone, or around the whole answer.
        closing = [number for number, line in enumerate(rest) if line.rstrip() == fence]
        filled = [number for number, line in enumerate(rest) if line.strip()]
        if closing and filled[0] == closing[0]:
            rest = rest[closing[0] + 1 :]
        elif closing and filled[-1] == closing[-1]:
            rest = rest[: closing[-1]]
    return [*lines[:at], *rest]


def _fence_of(line: str, languages: Container[str] = _LANGUAGES) -> str:
    info = line.lstrip("`")
    fence = line[: len(line) - len(info)]
    return fence if len(fence) >= 3 and info.strip() in languages else ""


def _says(text: str, value: Any) -> bool:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return False
    if isinstance(data, dict) and isinstance(value, Mapping):
        return all(key in value or item is None for key, item in data.items())
    return bool(data == value)


def _is_block_of(lines: Sequence[str], value: Mapping[str, Any]) -> bool:
    is_block = False
    for line in lines:
        if not line.strip() or line[0] in " \t#-":
            continue
        if line[0] in "\"'":
            key, _, after = line[1:].partition(line[0])
            colon, text_after = after.lstrip()[:1], after.lstrip()[1:]
        else:
            key, colon, text_after = line.partition(":")
        if not colon or text_after[:1] not in ("", " ", "\t"):
            return False
        if key.strip() not in value and text_after.strip() not in _NOTHING:
            return False
        is_block = True
    return is_block


def _shielded(text: str) -> str:
    if not text.startswith("---\n"):
        return text
    inner, mark, rest = text[4:].partition("\n---")
    if not mark or rest[:1] not in ("", "\n"):
        return text
    return fenced(f"---\n{inner}\n---", "yaml") + rest


# Pages


def section(page_step: PageStep, level: int, reference: str = "", is_stored: bool = False) -> str:
    """Return a step as Markdown under a heading of that level: verdict, agent, output, other text.
    `reference` follows the agent. One that `is_stored` doesn't say which approvals are unsigned, or of unseen code: the
    bytes of a commit's page are fixed."""
    number, step, detail = page_step.number, page_step.step, page_step.detail
    word, field = ruling(step.output)
    heading = f"{'#' * level} {number} {_name_of(step)}"
    if word:
        heading += f": {inline('asks' if asks_human(step.output) else word)}"
    parts = [heading, _by(page_step) + (f" · {reference}" if reference else "")]
    if reply_in(step.output) is not None:
        return "\n\n".join(
            [*parts, below(answer_of(step.output, detail.type, detail.payload).strip(), level)]
        )
    if shown := output(step.output, field):
        parts.append(shown)
    if report := report_of(step.output, detail):
        parts.append(below(report, level))
    if (revision := code_of(detail)) is not None:
        on = f" on `{revision.base}`" if revision.is_changed else ", unchanged"
        parts.append(f"Code: commit `{revision.commit}`{on}")
    for approval in page_step.approvals:
        why = f": {inline(approval.reason)}" if approval.reason.strip() else ""
        if approval.is_unseen and not is_stored:
            from uwf_git.format.approvals import UNSEEN

            why = f", {UNSEEN}{why}"
        if approval in page_step.unsigned:
            why = f", unsigned{why}"
        parts.append(
            f"Answered by {inline(str(approval.by))}, {iso(approval.at)}, shown {code(approval.digest)}{why}"
        )
    return "\n\n".join(parts)


def code_of(detail: Node) -> Revision | None:
    """Return the code that a step left, None if none was recorded."""
    return parse_detail(detail.payload).code if is_kind(detail.type, "detail") else None


def step_page(step: PageStep) -> bytes:
    page = section(step, 1, is_stored=True)
    if step.child:
        last = step.step.detail
        page += (
            f"\n\nThe last step of that run is [`{last}`]({node_file(last)}). "
            "The second parent of this commit leads to its commits."
        )
    return page_of(page)


def page_of(text: str) -> bytes:
    """Return a page of a Markdown text."""
    return harmless(f"{text}\n").encode("utf-8", "replace")


def approvals_of(detail: Node, get: Callable[[Hash], Node]) -> tuple["Approval", ...]:
    """Return the approvals that a step's detail refers to. Raises as `get` does."""
    nodes = parse_detail(detail.payload).approvals if is_kind(detail.type, "detail") else ()
    if not nodes:
        return ()
    from uwf_git.format.approvals import parse_approval

    return tuple(parse_approval(get(node).payload) for node in nodes)


def attempt_page(attempt: Attempt, detail: Node | None, credit: Credit) -> bytes:
    """Return a failed attempt's page: who made it, error, the agent's text, its command's output."""
    parts = [f"# {_name(attempt.role)}: failed", f"by {_credited(credit)}: {inline(attempt.error)}"]
    report = report_of(None, detail) if detail is not None else ""
    if report:
        parts.append(below(report, 1))
    for name, text in (("stdout", attempt.stdout), ("stderr", attempt.stderr)):
        if text.strip() and text.strip() not in report:
            parts.append(f"The end of {name}:\n\n{fenced(text, 'text')}")
    if attempt.code is not None:
        parts.append(f"What it left: commit `{attempt.code.commit}` on `{attempt.code.base}`")
    return harmless("\n\n".join(parts) + "\n").encode("utf-8", "replace")


def start_readme(prompt: str) -> bytes:
    """Return the prompt, with control characters written out."""
    return harmless(prompt).encode("utf-8")


def child_of(detail: Node, get: Callable[[Hash], Node]) -> str:
    """Return the name of the sub-workflow that made a step, else "". Raises as `get` does."""
    if not is_kind(detail.type, "step"):
        return ""
    start = parse_start(get(parse_step(detail.payload).start).payload)
    return parse_workflow(get(start.workflow).payload).name


# The page of a thread


def first_thread_page(title: str, workflow: str) -> bytes:
    """Return a thread's page before its first step."""
    return (
        f"# {title}\n\n"
        f"A run of the workflow [{_plain(workflow)}](workflow/README.md). One commit is one step.\n\n"
        "| where | what |\n|---|---|\n"
        "| [start](start/README.md) | the task as it was given |\n"
        "| [workflow](workflow/README.md) | who can go next, and when |\n"
        "| steps | one folder a step, with the agent's answer as its page |\n"
        "| nodes | in each folder: the same as data, found by content hash |\n"
    ).encode()


def line_of(number: int, step: StepContext) -> str:
    """Return a step's line for its thread's page."""
    page = "/".join((*step_folder(number, step.role), "README.md"))
    made_up = ", made up" if step.agent == REHEARSE else ""
    by = f"{_credited(step.credit)}{made_up}"
    return f"| [{number} {_name_of(step)}]({page}) | {inline(verdict(step.output))} | {by} |"


def lines_in(page: bytes) -> list[str]:
    """Return the step lines of a thread's page."""
    _, mark, lines = page.decode("utf-8", "replace").rpartition(_STEPS)  # a question above may hold the same
    return lines.splitlines() if mark else []


def thread_page(standing: PageState, lines: Sequence[str]) -> bytes:
    """Return a thread's page after a step. `lines` are those since the last hundred, oldest first."""
    return top_of(standing) + listed(lines)


def listed(lines: Iterable[str]) -> bytes:
    return harmless("".join([f"{line}\n" for line in lines])).encode("utf-8", "replace")


def top_of(standing: PageState) -> bytes:
    title, workflow, number, rehearsed, last, then = standing
    steps = counted(number, "step")
    page = "/".join((*step_folder(number, last.role), "README.md"))
    talks = reply_in(last.output) is not None and last.role != USER
    asks = asks_human(last.output) and last.role != USER and not talks
    came = "" if asks else inline(verdict(last.output))
    reached = f"[{number} {_name_of(last)}{f': {came}' if came else ''}]({page})"
    if asks:
        state = f"**Waits for an answer** after {steps}, to [{number} {_name(last.role)}]({page})."
    elif talks:
        state = f"**A conversation** of {steps}, the last {reached}."
    elif then == END:
        state = f"**Ended** after {steps}, with {reached}."
    elif then == FAIL:
        state = f"**Failed** after {steps}, with {reached}."
    else:
        state = f"**Under way**, {steps} so far, the last {reached}." + (
            f" Next: {inline(next_name(then))}." if then else ""
        )
    parts = [
        f"# {inline(title)}",
        state,
        f"A run of the workflow [{inline(workflow)}](workflow/README.md) on [this task](start/README.md). "
        "One commit is one step.",
    ]
    if rehearsed:
        parts.append(f"*Made up by {code(REHEARSE)}: {rehearsed} of {steps}.*")
    if asks and isinstance(last.output.get("question"), str):
        parts.append(question(last.output))
    elif then in ENDS and 0 < len(shown := output(last.output, ruling(last.output)[1])) <= _LONGEST_OUTCOME:
        parts.append(shown)
    if number >= HUNDRED:
        parts.append(_earlier(number // HUNDRED))
    return harmless("\n\n".join(parts) + f"\n\n{_STEPS}").encode("utf-8", "replace")


@functools.lru_cache(2)
def _earlier(hundreds: int) -> str:
    links = (f"[{_span(number)}]({past_page_path(number)})" for number in range(hundreds))
    return f"Earlier steps: {', '.join(links)}"


def past_page_path(hundred: int) -> str:
    """Return `steps/00xx.md` for steps below 100, and so on."""
    return f"steps/{hundred:02d}xx.md"


def past_page(hundred: int, lines: Sequence[str]) -> bytes:
    moved = "".join(f"{line.replace('](steps/', '](', 1)}\n" for line in lines)
    return f"# Steps {_span(hundred)}\n\n{_TABLE}{moved}".encode("utf-8", "replace")


def numbers_in(hundred: int) -> range:
    """Return the step numbers of a hundred: 1 to 99, 100 to 199, …"""
    return range(max(hundred * HUNDRED, 1), (hundred + 1) * HUNDRED)


def missing_hundreds(number: int, names: Container[str]) -> list[int]:
    """Return the full hundreds before a step that have no page in the steps folder."""
    return [past_name for name, past_name in _past_names(number // HUNDRED).items() if name not in names]


@functools.lru_cache(2)
def _past_names(hundreds: int) -> dict[str, int]:
    return {past_page_path(number).removeprefix("steps/"): number for number in range(hundreds)}


def _span(hundred: int) -> str:
    numbers = numbers_in(hundred)
    return f"{numbers[0]} to {numbers[-1]}"


def _name(role: str) -> str:
    return "answer" if role == USER else inline(role_name(role))


def _name_of(step: StepContext) -> str:
    return "remark" if step.remark is not None else _name(step.role)


def _credited(credit: Credit) -> str:
    return credit.text(inline, code)


def _by(step: PageStep) -> str:
    if step.child:
        return f"by a run of the workflow {code(step.child)}"
    model = parse_detail(step.detail.payload).model if is_kind(step.detail.type, "detail") else None
    made_up = ", made up" if step.step.agent == REHEARSE else ""
    by = _credited(step.step.credit)
    return f"by {by}" + (f", model {code(model)}" if model else "") + made_up


def _plain(text: str) -> str:
    flat = one_line(text, 300)
    return "".join("\\" + c if c in "\\`*_[]<>|#" else c for c in flat)
