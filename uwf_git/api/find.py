"""Finding a step or thread by a prefix of its id or hash."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uwf_git.base.errors import Invalid, NotFound, Usage, UwfError
from uwf_git.format.types import is_kind

if TYPE_CHECKING:
    from uwf_git.format.ids import Hash, ThreadId
    from uwf_git.store.index import CommitRow
    from uwf_git.store.instance import Instance


def numbered_step(instance: Instance, thread: ThreadId, number: int) -> CommitRow:
    """Return step N of a thread. Raises NotFound."""
    from uwf_git.store.history import ancestry

    head = instance.threads.head(thread)
    if not 0 < number <= head.row.number:
        raise NotFound(
            f"thread {thread} has no step {number}", f"it has {head.row.number}: uwf thread steps {thread}"
        )
    return next(row for row in ancestry(instance.store, head.commit) if row.number == number)


def with_step(text: str) -> tuple[str, int | None]:
    """Split `ID@STEP`; `@2` alone is a thread."""
    name, at, number = text.rpartition("@")
    if at and name and number.isascii() and number.isdigit() and len(number) < 10:
        return name, int(number)
    return text, None


def find_step(instance: Instance, text: str, attempts: bool = False) -> Hash:
    """Return a StepNode by `ID@STEP` or hash; with `attempts` also an Attempt. Raises NotFound, Usage,
    Invalid for another kind of node."""
    name, number = with_step(text)
    if number is not None:
        return numbered_step(instance, instance.threads.find(name), number).node
    node = instance.store.complete(text)
    kind = instance.store.get(node).type
    if not is_kind(kind, "step") and not (attempts and is_kind(kind, "attempt")):
        raise Invalid(f"node {node} is not a step", "see the hashes with: uwf thread steps ID")
    return node


def find_thread_or_step(instance: Instance, text: str) -> ThreadId | Hash:
    """Return a thread, or a StepNode's or StartNode's hash. Raises NotFound, Usage."""
    if len(text.strip()) == 26:
        return instance.threads.find(text)
    thread: ThreadId | None = None
    node: Hash | None = None
    problem: UwfError | None = None
    try:
        thread = instance.threads.find(text)
    except UwfError as error:
        problem = error
    try:
        node = instance.store.complete(text)
        instance.store.get(node)
    except UwfError as error:
        node, problem = None, error if isinstance(error, Usage) else problem or error
    if thread and node:
        raise Usage(f"{text} is thread {thread} and node {node}", "give more characters")
    if thread or node:
        return thread or node  # type: ignore[return-value]
    if isinstance(problem, Usage):
        raise problem
    raise NotFound(f"no thread or step {text!r}", "see: uwf thread list --all, uwf thread steps ID")
