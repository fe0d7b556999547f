"""`/thread/ID/matrix`: the branches of a fan-out by the roles that they passed."""

from __future__ import annotations

from uwf_git.plugin import Instance, Page, PageRequest, branch_matrix


def page(instance: Instance, request: PageRequest) -> Page:
    """Show the newest fan-out. Query: `fork`, the number of another one's step; `from`, the first branch. Raises
    NotFound, Usage."""
    head = instance.threads.head(instance.threads.find(request.parts["id"]))
    value = branch_matrix(instance, head, request.number("fork"), request.number("from"))
    title = head.row.title or head.thread
    return Page("matrix.html", f"Branches of {title}", {"asked": request, "matrix": value, "name": title})
