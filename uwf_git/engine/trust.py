"""What code is trusted by: the SHA-256 of its file, its language and its workflow's name, on this machine alone.

The id that people know a version by is an XXH64, which can be forged, so it is never what trust goes by. What code is
granted goes by the name, which whoever pushes it chooses, and a file may be one thing in one language and another in
the other: so trust is for all three. A user's own `put` trusts what was put. What came by a pull, a clone, an import or
a proposal isn't trusted until its user has said so, and until then it is read, verified, shared and answered like
everything else, and not run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uwf_git.base.errors import Invalid, NotFound, Untrusted
from uwf_git.format.kinds import Code, Workflow

if TYPE_CHECKING:
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
