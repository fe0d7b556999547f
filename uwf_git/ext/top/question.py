"""The question of a waiting thread, and its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from uwf_git.plugin import (
    FormField,
    Hash,
    Head,
    Instance,
    ThreadId,
    ThreadState,
    Usage,
    control,
    permission_lines,
    permission_requests,
    permission_value,
    presented_at,
    thread_states,
    waits_in,
)


class Answer(NamedTuple):
    """The answer to the question at a `step`: a `text`, with `other` outside of the options, or texts by field. `code`
    is the commit or tree that it judges, "" for none."""

    thread: ThreadId
    step: Hash
    text: str = ""
    fields: Mapping[str, Sequence[str]] = {}
    other: bool = False
    code: str = ""

    @property
    def key(self) -> str:
        return self.step

    def give(self, instance: Instance) -> bool:
        """Record it; return whether the thread goes on. Moves and raises as `api.control.answer`."""
        outcome = control.answer(
            instance, self.thread, self.text, self.step, self.other, self.fields, code=self.code
        )
        return not outcome.done


class Decision(NamedTuple):
    """The answer to what a running agent asks leave for; `always`: to equal requests too."""

    thread: ThreadId
    request: str
    granted: bool
    always: bool = False

    @property
    def key(self) -> str:
        return self.request

    def give(self, instance: Instance) -> bool:
        """Record it; the thread goes on by itself. Raises as `api.control.permit`."""
        control.permit(instance, self.thread, self.request, self.granted, self.always)
        return False


_DECISIONS = {"allow": (True, False), "deny": (False, False), "always": (True, True)}


class Question(NamedTuple):
    """A thread's request at its `step`; that of a running agent has the id of its `permission`. `code` is the commit or
    tree that a role judges, "" for none; `command` is the one that uwf inbox shows. `options` are the choices of a
    question, or of the only field that must be filled in."""

    thread: ThreadId
    step: Hash
    kind: thread_states.Request
    role: str
    text: str
    reason: str
    command: str
    code: str = ""
    options: tuple[str, ...] = ()
    fields: tuple[FormField, ...] = ()
    permission: str = ""

    @property
    def key(self) -> str:
        """The key of its answers."""
        return self.permission or self.step

    @property
    def is_budget(self) -> bool:
        return self.kind is thread_states.Request.BUDGET

    def choose(self, number: int) -> Answer | Decision | None:
        """Return the answer with an option, None if there is no such option."""
        if not 0 < number <= len(self.options):
            return None
        option = self.options[number - 1]
        if self.permission:
            return Decision(self.thread, self.permission, *_DECISIONS[option])
        if not self.fields:
            return self._answer(text=option)
        needed = next(field for field in self.fields if field.required)
        return self._answer({needed.name: [option]})

    def say(self, text: str) -> Answer | Decision:
        """Return the answer with a text, or with the option of that number."""
        if text.strip().isdecimal() and (chosen := self.choose(int(text))) is not None:
            return chosen
        return self._answer(text=text, other=bool(self.options) and text not in self.options)

    def fill(self, fields: Mapping[str, Sequence[str]]) -> Answer:
        """Return the answer with texts by field."""
        return self._answer(fields)

    def _answer(
        self, fields: Mapping[str, Sequence[str]] = {}, text: str = "", other: bool = False
    ) -> Answer:
        return Answer(self.thread, self.step, text, fields, other, self.code)


def texts_of(field: FormField, typed: str) -> list[str]:
    """Return the texts of a field from a typed line: choices by their numbers too, the items of a list separated by
    semicolons. Raises Usage."""
    texts = [item.strip() for item in (typed.split(";") if field.is_list else [typed]) if item.strip()]
    if not texts and field.required:
        raise Usage(f"{field.name} must be filled in", "Esc leaves")
    if not field.choices:
        return texts
    chosen = []
    for text in texts:
        if text.isdecimal() and 0 < int(text) <= len(field.choices):
            text = field.choices[int(text) - 1]
        if text not in field.choices:
            raise Usage(f"{field.name} is one of {', '.join(field.choices)}", "or its number")
        chosen.append(text)
    return chosen


def question_at(instance: Instance, head: Head, state: ThreadState) -> Question | None:
    """Return what a thread asks, None if nothing. Raises what reading it raises."""
    if state.is_at_work:
        return _permission(instance, head)
    waits = waits_in(instance, head, state)
    if waits is None:
        return None
    code = ""
    if waits.kind is thread_states.Request.ROLE:
        shown = presented_at(instance, head)
        code = shown.code.state if shown is not None and shown.code is not None else ""
    return Question(
        waits.thread,
        waits.step,
        waits.kind,
        waits.role,
        waits.question,
        waits.reason,
        waits.command,
        code,
        waits.options,
        waits.fields,
    )


def _permission(instance: Instance, head: Head) -> Question | None:
    for request in permission_requests(instance, head.thread):
        value = permission_value(request)
        return Question(
            head.thread,
            head.node,
            thread_states.Request.QUESTION,
            value["role"],
            "\n".join([f"{value['agent']} asks leave to", *permission_lines(value)]),
            "",
            value["commands"]["allow"],
            options=tuple(value["commands"]),
            permission=value["request"],
        )
    return None
