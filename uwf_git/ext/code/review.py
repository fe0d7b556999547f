"""Code before somebody trusts it: its file to read, and how what it says of itself differs from what was registered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uwf_git.base.errors import Invalid, UwfError
from uwf_git.base.text import one_line
from uwf_git.format.kinds import Workflow

if TYPE_CHECKING:
    from uwf_git.git.repository import Oid
    from uwf_git.store.opened import Instance


def reviewed(instance: Instance, workflow: Workflow, commit: Oid) -> str:
    """The file of a bundle, for somebody to read. Raises StoreDamaged where the version has another file than its node
    names, Invalid for code that breaks the contract, which is run nowhere."""
    from uwf_git.ext.code.contract import breaches_of

    code = workflow.code
    assert code is not None
    source = instance.registry.code(workflow, commit)
    if breaches := breaches_of(source, code.language):
        first = breaches[0]
        raise Invalid(
            f"bundle {code.id}: {workflow.file}:{first.line}:{first.column}: {first.message}",
            f"read it: uwf workflow show {code.id} --source",
        )
    return source.decode("utf-8")


def otherwise(instance: Instance, workflow: Workflow, source: str) -> str:
    """What to tell of a bundle that is trusted now: how what its code says of itself differs from what was registered,
    by whoever did that; "" where it doesn't."""
    from uwf_git.ext.code.contract import read_again
    from uwf_git.store.versions import compare

    try:
        anew = read_again(workflow, source.encode(), instance.config).workflow
    except UwfError as error:
        return f"what its code says of itself couldn't be compared with what was registered: {error.message}"
    changes = [one_line(f"{each.what} {each.name}", 60) for each in compare(workflow, anew)]
    if not changes:
        return ""
    return f"its code says of itself something else than was registered: {', '.join(changes[:5])}"
