"""`/workflows` and `/workflow/NAME`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from markupsafe import Markup

from uwf_git.ext.web.page.graph import described, drawing, node_label
from uwf_git.plugin import (
    BUDGET_OPTIONS,
    DiagramDrawing,
    Head,
    Instance,
    LimitExceeded,
    ListedThread,
    NotFound,
    Oid,
    Page,
    PageRequest,
    Rehearsal,
    ResolvedWorkflow,
    ThreadFilters,
    TimeBudgetExceeded,
    Usage,
    UwfError,
    Workflow,
    bundle_of,
    compare_trees,
    definitions,
    duration_text,
    list_threads,
    nearest,
    past_versions,
    registered_versions,
    rehearse,
    stored_workflow,
    unified_diff,
    without_quiet_branches,
)

LINES = 2000  # of a difference, and of a bundle's code
SECONDS = 2.0  # of a rehearsal
_TAKEN = {"+": "added", "-": "removed"}


def index(instance: Instance, asked: PageRequest) -> Page:
    """Show registered workflows and those of threads, or of repeated `thread` in the query only."""
    only = asked.all("thread")
    used = _used(instance, only)
    found = [
        {**used.pop(each["name"], _UNUSED), **each}
        for each in registered_versions(instance)
        if not only or each["name"] in used
    ]
    others = [{"name": name, **each} for name, each in sorted(used.items())]
    return Page("workflows.html", "Workflows", {"workflows": found, "others": others})


_UNUSED: Mapping[str, Any] = {"threads": 0, "states": {}, "last": None, "hash": None}


def _used(instance: Instance, only: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    found: dict[str, list[ListedThread]] = {}
    for each in list_threads(instance, ThreadFilters(ended=True)):
        if isinstance(each.head, Head) and each.head.row.name and (not only or each.thread in only):
            found.setdefault(each.head.row.name, []).append(each)
    # The list, to which the number links, shows them so.
    return {name: _states(without_quiet_branches(instance, each)) for name, each in found.items()}


def _states(found: Sequence[ListedThread]) -> dict[str, Any]:
    times = [each.head.updated for each in found if isinstance(each.head, Head)]
    states = dict(Counter(each.state.word for each in found).most_common())
    newest = next((each.head.row.workflow for each in found if isinstance(each.head, Head)), None)
    return {"threads": len(times), "states": states, "last": max(times, default=None), "hash": newest}


def page(instance: Instance, asked: PageRequest) -> Page:
    """Show a workflow by name, NAME~2, CREW/ID or hash; an unregistered name is that of the newest thread
    with it. Query: versions `from` and `to`, `rehearse`, and `thread`. Raises NotFound, Usage."""
    name = asked.parts["name"]
    found = stored_workflow(instance, name)
    if found is None and (version := _used(instance).get(name, _UNUSED)["hash"]):
        name, found = version, stored_workflow(instance, version)
    if found is None:
        hint = nearest(name, instance.registry.names()) or "see: uwf workflow list"
        raise NotFound(f"no workflow {name!r}", hint)
    workflow = found.workflow
    versions = _versions(instance, found)
    use = _used(instance, asked.all("thread")).get(workflow.name, _UNUSED)
    report = _rehearsed(instance, found) if asked.one("rehearse") and workflow.code is None else None
    bundle = bundle_of(workflow, instance, found.commit)
    return Page(
        "workflow.html",
        workflow.name,
        {
            "asked": asked,
            "name": name,
            "workflow": workflow,
            "hash": found.hash,
            "commit": found.commit,
            "versions": versions,
            "current": next((each["hash"] for each in versions if each["current"]), None),
            "note": definitions.history_note,
            "use": use,
            "difference": _difference(instance, asked, versions, found),
            "graph": Markup(drawing(workflow, [])) if workflow.graph else None,
            "described": described(workflow, []),
            "transitions": _transitions(workflow, report),
            "roles": _roles(found),
            "conditions": [each for _, each in sorted(workflow.conditions.items())],
            "budget": _budget(workflow),
            "report": report,
            "bundle": bundle,
            "code": _code(instance, found) if workflow.code is not None else None,
        },
    )


def _rehearsed(instance: Instance, found: ResolvedWorkflow) -> Rehearsal:
    """Return a rehearsal's report within the time for slow decisions. Raises LimitExceeded."""
    try:
        with instance.judging.budget.spend():
            return rehearse(found.workflow, found.schemas, seconds=SECONDS)
    except TimeBudgetExceeded:
        limit = f"slow conditions have taken {instance.judging.budget.seconds:g} s"
        hint = f"uwf workflow rehearse {found.hash}"
        raise LimitExceeded(f"workflow {found.workflow.name} was not rehearsed, as {limit}", hint) from None


def _versions(instance: Instance, found: ResolvedWorkflow) -> list[dict[str, Any]]:
    """Return the versions of the workflow's name; none if unregistered, or another workflow has it."""
    if found.workflow.crew is None:
        with suppress(NotFound):
            versions = past_versions(instance, found.workflow.name)
            if any(each["hash"] == found.hash for each in versions):
                return versions
    return []


def _difference(
    instance: Instance, asked: PageRequest, versions: Sequence[Mapping[str, Any]], found: ResolvedWorkflow
) -> dict[str, Any] | None:
    after = asked.one("to")
    before = asked.one("from")
    if not (after or before):
        return None
    sides = [_side(instance, before or _before(versions, after)), _side(instance, after or found.hash)]
    old, new = (instance.registry.files(Oid(hex=str(side.commit))) for side in sides)
    lines = list(unified_diff(old, new, [f"{side.workflow.name} {side.hash}" for side in sides]))
    return {
        "from": sides[0].hash,
        "to": sides[1].hash,
        "changes": compare_trees(sides[0].workflow, sides[1].workflow),
        "lines": [
            (line.rstrip("\n"), "" if line.startswith(("+++", "---")) else _TAKEN.get(line[:1], ""))
            for line in lines[:LINES]
        ],
        "hidden": max(0, len(lines) - LINES),
    }


def _side(instance: Instance, text: str) -> ResolvedWorkflow:
    found = stored_workflow(instance, text)
    if found is None:
        raise NotFound(f"no workflow {text!r}", "see: uwf workflow history NAME")
    return found


def _before(versions: Sequence[Mapping[str, Any]], after: str) -> str:
    hashes = [str(each["hash"]) for each in versions]
    places = [place for place, each in enumerate(hashes) if each == after and place + 1 < len(hashes)]
    if not places:
        raise Usage(f"there is no version before {after}", "name both, from and to")
    return hashes[places[0] + 1]


def _transitions(workflow: Workflow, report: Rehearsal | None) -> list[dict[str, Any]]:
    taken = Counter[tuple[str, str, str | None, str | None]]()
    for use in report.edges if report else ():
        taken[use.source, use.target, use.status, use.condition] += use.taken
    return [
        {
            "source": node_label(arrow.source),
            "target": node_label(arrow.target),
            "label": arrow.label,
            "condition": edge.condition,
            "text": edge.text,
            "prompt": edge.prompt,
            "taken": taken[arrow.source, edge.leads_to, edge.status, edge.condition],
        }
        for arrow in DiagramDrawing(workflow).arrows
        if (edge := arrow.edge) is not None
    ]


def _roles(found: ResolvedWorkflow) -> list[dict[str, Any]]:
    workflow = found.workflow
    roles = []
    for name in DiagramDrawing(workflow).names:
        if (role := workflow.roles.get(name)) is None:
            continue
        schema = found.schemas[role.schema]
        persona = workflow.personas.get(role.persona)
        roles.append(
            {
                "name": name,
                "role": role,
                "persona": persona,
                "schema": schema,
                "hash": role.schema,
                "answers": _answers(schema),
            }
        )
    return roles


def _answers(schema: Any) -> list[list[dict[str, Any]]]:
    if not isinstance(schema, Mapping):
        return []
    variants = next((schema[key] for key in ("oneOf", "anyOf") if isinstance(schema.get(key), list)), ())
    return [fields for each in (schema, *variants) if (fields := _fields(each))]


def _fields(schema: Any) -> list[dict[str, Any]]:
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping):
        return []
    required = schema.get("required", ())
    return [
        {
            "name": name,
            "kind": _kind(each),
            "required": name in required,
            "description": each.get("description", "") if isinstance(each, Mapping) else "",
        }
        for name, each in properties.items()
    ]


def _kind(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        return "anything" if schema else "nothing"
    for key in ("enum", "const"):
        if key in schema:
            values = schema[key] if key == "enum" else [schema[key]]
            return "one of " + ", ".join(map(str, values[:12])) if len(values) > 1 else str(values[0])
    kind = schema.get("type", "anything")
    said = " or ".join(kind) if isinstance(kind, list) else str(kind)
    if said == "array" and isinstance(items := schema.get("items"), Mapping) and "type" in items:
        return f"array of {_kind(items)}"
    return said


def _budget(workflow: Workflow) -> list[tuple[str, str]]:
    given = workflow.budget or {}
    return [
        (key, f"${given[key]:g}" if key == "maxCost" else _amount(key, given[key]))
        for key in BUDGET_OPTIONS
        if key in given
    ]


def _amount(key: str, value: float) -> str:
    return duration_text(value) if key == "maxWallTime" else f"{value:,.0f}"


def _code(instance: Instance, found: ResolvedWorkflow) -> dict[str, Any]:
    try:
        data = instance.registry.code_of(found.hash)
    except UwfError as error:
        return {"problem": error.message, "text": "", "hidden": 0}
    lines = data.decode("utf-8", "replace").splitlines()
    return {"problem": "", "text": "\n".join(lines[:LINES]), "hidden": max(0, len(lines) - LINES)}
