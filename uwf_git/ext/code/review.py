"""Code to review before trusting it, and differences between its descriptor and the registered one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uwf_git.plugin import Invalid, UwfError, Workflow, one_line

if TYPE_CHECKING:
    from uwf_git.plugin import Instance, Oid


def reviewed(instance: Instance, workflow: Workflow, commit: Oid) -> str:
    """Return a code workflow's file for review. Raises StoreDamaged if the version has another file than its
    node, Invalid if it violates the contract."""
    from uwf_git.ext.code.contract import breaches_of

    code = workflow.code
    assert code is not None
    source = instance.registry.code(workflow, commit)
    if breaches := breaches_of(source, code.language):
        first = breaches[0]
        raise Invalid(
            f"code {code.id}: {workflow.file}:{first.line}:{first.column}: {first.message}",
            f"read it: uwf workflow show {code.id} --source",
        )
    return source.decode("utf-8")


def otherwise(instance: Instance, workflow: Workflow, source: str) -> str:
    """Return how a now trusted workflow's descriptor differs from the registered one, "" if it doesn't."""
    from uwf_git.ext.code.contract import read_again
    from uwf_git.plugin import compare_trees

    try:
        anew = read_again(workflow, source.encode(), instance.config).workflow
    except UwfError as error:
        return f"what its code says of itself couldn't be compared with what was registered: {error.message}"
    changes = [one_line(f"{change.what} {change.name}", 60) for change in compare_trees(workflow, anew)]
    if not changes:
        return ""
    return f"its code says of itself something else than was registered: {', '.join(changes[:5])}"
