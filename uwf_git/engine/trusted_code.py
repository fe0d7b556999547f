"""Trust in code: by the SHA-256 of its file, its language and its workflow's name, on this machine only.

A version's XXH64 id can be forged. Permissions follow the name, which the pusher chooses, and a file may mean
different things in two languages, so all three count. `put` trusts the user's own workflow. Code from a pull,
clone, import or proposal is not run until its user trusts it; it can be read, verified, shared and answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uwf_git.base.errors import Invalid, NotFound, Untrusted
from uwf_git.format.kinds import Code, Workflow

if TYPE_CHECKING:
    from uwf_git.store.instance import Instance


def is_trusted(instance: Instance, workflow: Workflow) -> bool:
    """Return whether a workflow may run here; always true without code."""
    return workflow.code is None or instance.trusted.has(*_identity(workflow.code, workflow))


def require_trusted(instance: Instance, workflow: Workflow) -> None:
    """Raise Untrusted for code that is not trusted on this machine."""
    code = workflow.code
    if code is None or is_trusted(instance, workflow):
        return
    try:
        current = instance.registry.workflow(instance.registry.current(workflow.name).hash)
    except (NotFound, Invalid):
        current = None
    name = workflow.name if current is not None and current.code == code else code.id
    raise Untrusted(
        f"workflow {workflow.name!r} is code that isn't trusted on this machine (code {code.id})",
        f"read it, then: uwf workflow trust {name}",
    )


def trust_code(instance: Instance, workflow: Workflow) -> bool:
    """Trust a workflow's code. Return whether it was untrusted before. Raises RequirementUnmet within a step."""
    if is_trusted(instance, workflow):
        return False
    assert workflow.code is not None
    instance.require_person(f"trusts the code of workflow {workflow.name}")
    instance.trusted.add(*_identity(workflow.code, workflow))
    return True


def revoke_trust(instance: Instance, workflow: Workflow) -> bool:
    """Revoke trust in a workflow's code. Return whether it was trusted before."""
    assert workflow.code is not None
    return instance.trusted.remove(*_identity(workflow.code, workflow))


def _identity(code: Code, workflow: Workflow) -> tuple[str, str, str]:
    return code.sha256, code.language, workflow.name
