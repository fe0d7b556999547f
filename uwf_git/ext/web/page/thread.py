"""A thread as one deterministic HTML file: prompt, graph, steps with answers, cost and turns, attempts,
sub-workflows."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from uwf_git.ext.web.page.graph import drawing
from uwf_git.ext.web.page.step import amounts, turn
from uwf_git.plugin import (
    BUNDLE,
    END,
    REHEARSE,
    USER,
    Invocation,
    Oid,
    SpendingTotals,
    StepContext,
    ThreadSummary,
    ancestry,
    asks_human,
    author_name,
    branch_ways,
    census_of,
    census_text,
    counted,
    document,
    exact_time,
    find_head,
    graph_value,
    how_found,
    is_kind,
    markup,
    nested_spending,
    node_of_end,
    nodes_taken,
    report_of,
    role_name,
    spending_runs,
    spent_together,
    summary_of,
    tag,
    thread_outlook,
    thread_state,
    title_of,
    write_whole,
)

if TYPE_CHECKING:
    from uwf_git.plugin import Detail, FailedAttempt, Hash, Head, Instance

_DEEPEST = 8  # sub-workflows within each other that are shown


def page(instance: Instance, head: Head) -> str:
    """Return a thread's page. Raises what reading it raises."""
    return _Page(instance, head).html()


def export(invocation: Invocation, thread: str, file: Path, force: bool) -> None:
    """Write a thread's page to a file, or `-`. Raises Invalid."""
    instance = invocation.instance
    head = find_head(invocation, thread)
    data = page(instance, head).encode("utf-8", "replace")
    if str(file) == "-":
        invocation.write(data.decode("utf-8"))
        return
    write_whole(file, data, force)
    invocation.emit(
        {"thread": head.thread, "file": str(file), "bytes": len(data)},
        lambda value: f"{value['file']}: {value['bytes']:,} bytes",
    )


class _Page:
    def __init__(self, instance: Instance, head: Head) -> None:
        self._instance = instance
        self._head = head
        self._history = instance.threads.history(head)
        self._prices = instance.config.prices
        rows = ancestry(instance.store, head.commit)
        self._rows = list(takewhile(lambda row: row.kind in ("step", "start"), rows))
        commit = instance.store.repository.commit
        self._commits = {row.node: commit(Oid(raw=row.oid)) for row in self._rows}
        own = spending_runs(instance, head)
        inner = nested_spending(instance, head)
        self._all = [run.spent for run in (*own, *inner)]
        self._spent: dict[str, SpendingTotals] = {run.id: run.spent for run in (*inner, *own)}
        for number in {run.number for run in inner}:
            # A step that a sub-workflow did cost what that one's steps did.
            step = self._history.steps[number - 1].hash
            parts = [run.spent for run in inner if run.number == number]
            self._spent[step] = spent_together([self._spent[step], *parts])
        self._attempts: dict[Hash | None, list[FailedAttempt]] = {}
        for attempt in instance.attempts.all(head.thread):
            self._attempts.setdefault(attempt.prev, []).append(attempt)

    def html(self) -> str:
        title = title_of(self._history.start.heading)
        parts = (
            self._header(title),
            self._task(),
            self._graph(),
            self._list(),
            self._steps(),
            self._footer(),
        )
        return document(title, "".join(parts))

    # Above the steps

    def _header(self, title: str) -> str:
        head, history = self._head, self._history
        state = thread_state(self._instance, head)
        start = self._commits[history.start_hash]
        author = author_name(head.row.author or start.committer)
        spent = spent_together(self._all)._replace(attempts=sum(map(len, self._attempts.values())))
        census = census_of(self._instance, head.commit)
        facts = [
            ("state", tag("span", markup.text(state.word), f"badge {state.value.colour}") + self._ending()),
            (
                "workflow",
                markup.text(history.workflow.name)
                + " "
                + tag("code", markup.text(history.workflow_hash), "dim"),
            ),
            ("started", f"{markup.text(exact_time(start.time))} by {markup.text(author)}"),
            ("last change", markup.text(exact_time(head.updated))),
            ("steps", self._numbers(spent)),
            ("asked", markup.text(census_text(census.as_json())) if census is not None else ""),
            ("spent", " · ".join(map(markup.text, self._amounts(spent)))),
        ]
        shown = "".join(tag("dt", name) + tag("dd", inside) for name, inside in facts if inside)
        return tag("h1", markup.text(title)) + tag("dl", shown, "facts") + self._notices()

    def _ending(self) -> str:
        archive = self._head.archive
        return f": {markup.text(archive.reason)}" if archive is not None and archive.reason else ""

    def _numbers(self, spent: SpendingTotals) -> str:
        failed = f", and {counted(spent.attempts, 'failed attempt')}" if spent.attempts else ""
        return f"{len(self._history.steps)}{failed}"

    def _notices(self) -> str:
        notices = []
        if rehearsed := self._head.row.rehearsed:
            whole = "All" if rehearsed == len(self._history.steps) else "Some"
            notices.append(
                f"<strong>{whole} of this is made up:</strong> {counted(rehearsed, 'step')} by {markup.text(REHEARSE)},"
                " which invents valid answers to try a workflow out."
            )
        ahead = thread_outlook(self._instance, self._head, self._history)
        if not self._head.archive and ahead.next == USER and ahead.question:
            options = "".join(tag("li", markup.text(option)) for option in ahead.options)
            listed = tag("ul", options) if options else ""
            notices.append(
                f"<strong>{markup.text(ahead.asks or 'It')} asks:</strong> "
                + markup.markdown(ahead.question, breaks=True)
                + listed
            )
        elif not self._head.archive and ahead.next not in (None, END):
            notices.append(
                "Not at its end: "
                + (
                    "the code decides which role is next."
                    if ahead.next == BUNDLE
                    else f"{markup.text(ahead.next or '')}{self._whose(ahead.next or '')} is next."
                )
            )
        elif ahead.problem and not self._head.archive:
            notices.append(f"<strong>It cannot continue:</strong> {markup.text(ahead.problem)}")
        return "".join(tag("div", notice, "notice") for notice in notices)

    def _whose(self, name: str) -> str:
        workflow = self._history.workflow
        if not workflow.is_persons(name):
            return ""
        return f", which {markup.text(workflow.roles[name].assignee or 'a person')} plays,"

    def _task(self) -> str:
        return tag("h2", "Task") + tag(
            "div", markup.markdown(self._history.start.prompt, breaks=True), "task"
        )

    def _graph(self) -> str:
        end = node_of_end(self._head.archive.status if self._head.archive else None)
        steps = (step for step in self._history.steps if step.remark is None)
        taken = nodes_taken(((step.role, asks_human(step.output)) for step in steps), end)
        workflow = self._history.workflow
        description = markup.markdown(workflow.description) if workflow.description.strip() else ""
        return (
            tag("h2", f"Workflow {markup.text(workflow.name)}")
            + description
            + drawing(graph_value(workflow, taken, ran=branch_ways(self._instance, reversed(self._rows))))
        )

    def _list(self) -> str:
        items = "".join(
            tag(
                "li",
                tag("span", str(number))
                + f'<a href="#step-{number}">{markup.text(self._who(step))}</a>'
                + tag("span", markup.text(self._summary(step).text))
                + tag("span", " · ".join(map(markup.text, self._listed(step))), "meta"),
            )
            for number, step in enumerate(self._history.steps, 1)
        )
        return tag("h2", "What happened") + (
            tag("ol", items, "steps") if items else tag("p", "Nothing yet.", "dim")
        )

    def _listed(self, step: StepContext) -> list[str]:
        commit = self._commits.get(step.hash)
        return [*self._amounts(self._spent.get(step.hash)), *([exact_time(commit.time)] if commit else [])]

    # Steps

    def _steps(self) -> str:
        parts = [self._failed(None)]
        for number, step in enumerate(self._history.steps, 1):
            parts.append(self._step(number, step, f"step-{number}", 0))
            parts.append(self._failed(step.hash))
        return "".join(parts)

    def _step(self, number: int, step: StepContext, anchor: str, depth: int) -> str:
        store = self._instance.store
        node = store.get(step.detail)
        detail = store.detail(step.detail)
        summary = self._summary(step)
        badges = tag("span", markup.text(summary.text), "badge") if summary.decides else ""
        if step.agent == REHEARSE:
            badges += tag("span", "made up", "badge made-up")
        parts = [tag("div", tag("h3", f"{number} {markup.text(self._who(step))}") + badges, "head")]
        parts.append(tag("p", self._meta(step, detail), "meta"))
        parts.append(markup.value(step.output))
        report = report_of(step.output, node)
        if report:
            parts.append(markup.markdown(report))
        if is_kind(node.type, "step") and depth < _DEEPEST:
            parts.append(self._child(step.detail, depth))
        if detail is not None:
            parts.append(self._detail(detail))
        return tag("article", "".join(parts), id_=anchor)

    def _summary(self, step: StepContext) -> ThreadSummary:
        return summary_of(self._instance, self._history.workflow, step.role, step.output)

    def _who(self, step: StepContext) -> str:
        if step.role != USER:
            return role_name(step.role)
        commit = self._commits.get(step.hash)
        what = "answer" if step.remark is None else "remark"
        return f"{what} of {author_name(commit.committer) if commit else 'a person'}"

    def _meta(self, step: StepContext, detail: Detail | None) -> str:
        spent = self._spent.get(step.hash)
        commit = self._commits.get(step.hash)
        parts = [markup.text(step.by)]
        if detail is not None and detail.model:
            parts.append(markup.text(detail.model))
        parts += map(markup.text, self._amounts(spent))
        if commit is not None:
            parts.append(markup.text(exact_time(commit.time)))
        parts.append(tag("code", markup.text(step.hash)))
        return " · ".join(parts)

    def _child(self, last: Hash, depth: int) -> str:
        threads = self._instance.threads
        history = threads.history_at(self._head.thread, last)
        thread = next(
            (
                head.thread
                for head in threads.all(archived=True)
                if not hasattr(head, "problem") and head.node == last
            ),
            None,
        )
        name = f"by the workflow {markup.text(history.workflow.name)}, {counted(len(history.steps), 'step')}"
        where = f" · thread {tag('code', markup.text(thread))}" if thread else ""
        task = tag("div", markup.markdown(history.start.prompt, breaks=True), "task")
        steps = "".join(
            self._step(number, step, "", depth + 1) for number, step in enumerate(history.steps, 1)
        )
        return markup.fold(name + where, task + steps)

    def _detail(self, detail: Detail) -> str:
        parts = []
        if detail.instruction:
            parts.append(markup.fold("what it was asked", markup.markdown(detail.instruction)))
        if turns := self._instance.store.turns(detail):
            shown = "".join(map(turn, turns))
            parts.append(markup.fold(f"how it came about: {counted(len(turns), 'turn')}", shown))
        how = how_found(detail)
        notes = "".join(tag("li", markup.text(note)) for note in (*how, *detail.notes))
        if notes:
            parts.append(tag("ul", notes, "meta"))
        return "".join(parts)

    def _failed(self, prev: Hash | None) -> str:
        return "".join(map(self._attempt, self._attempts.get(prev, ())))

    def _attempt(self, attempt: FailedAttempt) -> str:
        detail = self._instance.store.detail(attempt.detail) if attempt.detail else None
        parts = []
        if detail is not None:
            if detail.answer.strip():
                parts.append(markup.answer(detail.answer))
            parts.append(self._detail(detail))
        for name, printed in (("stdout", attempt.stdout), ("stderr", attempt.stderr)):
            if printed.strip():
                parts.append(tag("p", f"The end of {name}:", "meta") + markup.pre(printed))
        when = tag("p", f"{markup.text(attempt.agent)} · {markup.text(exact_time(attempt.time))}", "meta")
        title = f"failed attempt of {markup.text(role_name(attempt.role))}: {markup.text(attempt.error)}"
        return markup.fold(title, when + "".join(parts), "attempt")

    def _amounts(self, spent: SpendingTotals | None) -> list[str]:
        return amounts(spent, self._prices)

    def _footer(self) -> str:
        head, history = self._head, self._history
        commit = self._commits[history.head]
        facts = [
            ("thread", tag("code", markup.text(head.thread))),
            ("head", tag("code", markup.text(history.head))),
            (
                "commit",
                f"{tag('code', markup.text(head.commit))}, "
                f"{markup.text(exact_time(commit.time))}, by {markup.text(commit.committer)}",
            ),
            ("to check", tag("code", markup.text(f"uwf verify {head.thread}"))),
        ]
        return tag("footer", tag("dl", "".join(tag("dt", a) + tag("dd", b) for a, b in facts), "facts"))
