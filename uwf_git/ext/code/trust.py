"""What code is trusted by: the SHA-256 of its file, its language and its workflow's name, on this machine alone.

The id that people know a version by is an XXH64, which can be forged, so it is never what trust goes by. What code is
granted goes by the name, which whoever pushes it chooses, and a file may be one thing in one language and another in
the other: so trust is for all three. A user's own `put` trusts what was put. What came by a pull, a clone, an import or
a proposal isn't trusted until its user has said so, and until then it is read, verified, shared and answered like
everything else, and not run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uwf_git.base.errors import Invalid, NotFound, Untrusted, UwfError
from uwf_git.base.text import one_line
from uwf_git.format.kinds import Code, Workflow

if TYPE_CHECKING:
    from uwf_git.git.repository import Oid
    from uwf_git.store.opened import Instance


def is_trusted(instance: Instance, workflow: Workflow) -> bool:
    """Whether a workflow may run here; always, of one that is no code."""
    return workflow.code is None or instance.trusted.has(*_identity(workflow.code, workflow))


def require_trusted(instance: Instance, workflow: Workflow) -> None:
    """Raises Untrusted for code that isn't trusted on this machine."""
    code = workflow.code
    if code is None or is_trusted(instance, workflow):
        return
    try:
        current = instance.registry.workflow(instance.registry.current(workflow.name).hash)
    except (NotFound, Invalid):
        current = None
    name = workflow.name if current is not None and current.code == code else code.id
    raise Untrusted(
        f"workflow {workflow.name!r} is code that isn't trusted on this machine (bundle {code.id})",
        f"read it, then: uwf workflow trust {name}",
    )


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


def trust(instance: Instance, workflow: Workflow) -> bool:
    """Trusts the code of a workflow, in the private folder; whether it wasn't before."""
    if is_trusted(instance, workflow):
        return False
    assert workflow.code is not None
    instance.trusted.add(*_identity(workflow.code, workflow))
    return True


def untrust(instance: Instance, workflow: Workflow) -> bool:
    """Trusts the code of a workflow no longer; whether it was trusted."""
    assert workflow.code is not None
    return instance.trusted.remove(*_identity(workflow.code, workflow))


def _identity(code: Code, workflow: Workflow) -> tuple[str, str, str]:
    return code.sha256, code.language, workflow.name
