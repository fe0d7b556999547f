"""`/workflows` and `/workflow/NAME`: its graph with the ways that runs took, its runs, versions, roles and code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from markupsafe import Markup

from uwf_git.ext.web.page.graph import described, drawing
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
    node_label,
    past_versions,
    registered_versions,
    rehearse,
    stored_workflow,
    thread_items,
    unified_diff,
    used_workflow,
    without_quiet_branches,
    workflow_runs,
    workflow_stats,
)

LINES = 2000  # of a difference, and of a bundle's code
SECONDS = 2.0  # of a rehearsal
_TAKEN = {"+": "added", "-": "removed"}


def index(instance: Instance, request: PageRequest) -> Page:
    """Show registered workflows and those of threads, or of repeated `thread` in the query only."""
    only = request.all("thread")
    used = _used(instance, only)
    workflows = [
        {**used.pop(version["name"], _UNUSED), **version}
        for version in registered_versions(instance)
        if not only or version["name"] in used
    ]
    others = [{"name": name, **item} for name, item in sorted(used.items())]
    return Page("workflows.html", "Workflows", {"workflows": workflows, "others": others})


_UNUSED: Mapping[str, Any] = {"threads": 0, "states": {}, "last": None, "hash": None}


def _used(instance: Instance, only: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    threads: dict[str, list[ListedThread]] = {}
    for thread in list_threads(instance, ThreadFilters(ended=True)):
        if isinstance(thread.head, Head) and thread.head.row.name and (not only or thread.thread in only):
            threads.setdefault(thread.head.row.name, []).append(thread)
    # The list, to which the number links, shows them so.
    return {name: _states(without_quiet_branches(instance, item)) for name, item in threads.items()}


def _states(threads: Sequence[ListedThread]) -> dict[str, Any]:
    times = [thread.head.updated for thread in threads if isinstance(thread.head, Head)]
    states = dict(Counter(thread.state.word for thread in threads).most_common())
    newest = next((thread.head.row.workflow for thread in threads if isinstance(thread.head, Head)), None)
    return {"threads": len(times), "states": states, "last": max(times, default=None), "hash": newest}


TABS = ("overview", "runs", "versions", "roles", "code")
ALL = "all"
"""The tab of an export, which has them all on one page."""
RUNS = 50


def page(instance: Instance, request: PageRequest) -> Page:
    """Show a workflow by name, NAME~2, CREW/ID or hash; an unregistered name is that of the newest thread
    with it. Query: `tab`, versions `from` and `to`, `rehearse`, and `thread`. Raises NotFound, Usage."""
    resolved_workflow = used_workflow(instance, request.parts["name"])
    workflow = resolved_workflow.workflow
    known = workflow.name in instance.registry.names() or request.parts["name"] != workflow.name
    name = request.parts["name"] if known else resolved_workflow.hash
    runs = workflow_runs(instance, workflow.name, request.all("thread"))
    stats = workflow_stats(instance, resolved_workflow, runs)
    versions = _versions(instance, resolved_workflow)
    compares = bool(request.one("from") or request.one("to"))
    tab = request.one("tab", "versions" if compares else TABS[0])
    if tab not in (*TABS, ALL):
        raise Usage(f"no tab {tab!r}", "it is one of " + ", ".join(TABS))
    report = (
        _rehearsed(instance, resolved_workflow) if request.one("rehearse") and workflow.code is None else None
    )
    graph = stats["graph"]
    shown = set(TABS) if tab == ALL else {tab}
    return Page(
        "workflow.html",
        workflow.name,
        {
            "asked": request,
            "tab": tab,
            "tabs": TABS,
            "shown": shown,
            "name": name,
            "workflow": workflow,
            "hash": resolved_workflow.hash,
            "commit": resolved_workflow.commit,
            "stats": stats,
            "figures": {version["hash"]: version for version in stats["versions"]},
            "runs": thread_items(instance, runs[:RUNS]) if "runs" in shown else [],
            "versions": versions,
            "newest": next((item["hash"] for item in versions if item["current"]), None),
            "note": definitions.history_note,
            "difference": _difference(instance, request, versions, resolved_workflow),
            "graph": Markup(drawing(graph)) if workflow.graph and "overview" in shown else None,
            "described": described(graph),
            "transitions": _transitions(workflow, report, graph) if "overview" in shown else [],
            "roles": _roles(resolved_workflow) if "roles" in shown else [],
            "conditions": [condition for _, condition in sorted(workflow.conditions.items())],
            "budget": _budget(workflow),
            "report": report,
            "bundle": bundle_of(workflow, instance, resolved_workflow.commit),
            "code": _code(instance, resolved_workflow) if "code" in shown else None,
            "lasted": duration_text,
        },
    )


def _rehearsed(instance: Instance, workflow: ResolvedWorkflow) -> Rehearsal:
    """Return a rehearsal's report within the time for slow decisions. Raises LimitExceeded."""
    try:
        with instance.judging.budget.spend():
            return rehearse(workflow.workflow, workflow.schemas, seconds=SECONDS)
    except TimeBudgetExceeded:
        limit = f"slow conditions have taken {instance.judging.budget.seconds:g} s"
        hint = f"uwf workflow rehearse {workflow.hash}"
        raise LimitExceeded(
            f"workflow {workflow.workflow.name} was not rehearsed, as {limit}", hint
        ) from None


def _versions(instance: Instance, workflow: ResolvedWorkflow) -> list[dict[str, Any]]:
    """Return the versions of the workflow's name; none if unregistered, or another workflow has it."""
    if workflow.workflow.crew is None:
        with suppress(NotFound):
            versions = past_versions(instance, workflow.workflow.name)
            if any(version["hash"] == workflow.hash for version in versions):
                return versions
    return []


def _difference(
    instance: Instance,
    request: PageRequest,
    versions: Sequence[Mapping[str, Any]],
    workflow: ResolvedWorkflow,
) -> dict[str, Any] | None:
    after = request.one("to")
    before = request.one("from")
    if not (after or before):
        if request.one("tab") != "versions" or len(versions) < 2:
            return None
        after = str(versions[0]["hash"])
    sides = [_side(instance, before or _before(versions, after)), _side(instance, after or workflow.hash)]
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
    workflow = stored_workflow(instance, text)
    if workflow is None:
        raise NotFound(f"no workflow {text!r}", "see: uwf workflow history NAME")
    return workflow


def _before(versions: Sequence[Mapping[str, Any]], after: str) -> str:
    hashes = [str(version["hash"]) for version in versions]
    places = [place for place, node in enumerate(hashes) if node == after and place + 1 < len(hashes)]
    if not places:
        raise Usage(f"there is no version before {after}", "name both, from and to")
    return hashes[places[0] + 1]


def _transitions(
    workflow: Workflow, report: Rehearsal | None, graph: Mapping[str, Any]
) -> list[dict[str, Any]]:
    passed = {(way["source"], way["target"]): way["times"] for way in graph["ways"]}
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
            "runs": passed.get((arrow.source, arrow.target), 0),
            "taken": taken[arrow.source, edge.leads_to, edge.status, edge.condition],
        }
        for arrow in DiagramDrawing(workflow).arrows
        if (edge := arrow.edge) is not None
    ]


def _roles(resolved_workflow: ResolvedWorkflow) -> list[dict[str, Any]]:
    workflow = resolved_workflow.workflow
    roles = []
    for name in DiagramDrawing(workflow).names:
        if (role := workflow.roles.get(name)) is None:
            continue
        schema = resolved_workflow.schemas[role.schema]
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
    return [fields for variant in (schema, *variants) if (fields := _fields(variant))]


def _fields(schema: Any) -> list[dict[str, Any]]:
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping):
        return []
    required = schema.get("required", ())
    return [
        {
            "name": name,
            "kind": _kind(item),
            "required": name in required,
            "description": item.get("description", "") if isinstance(item, Mapping) else "",
        }
        for name, item in properties.items()
    ]


def _kind(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        return "anything" if schema else "nothing"
    for key in ("enum", "const"):
        if key in schema:
            values = schema[key] if key == "enum" else [schema[key]]
            return "one of " + ", ".join(map(str, values[:12])) if len(values) > 1 else str(values[0])
    kind = schema.get("type", "anything")
    name = " or ".join(kind) if isinstance(kind, list) else str(kind)
    if name == "array" and isinstance(items := schema.get("items"), Mapping) and "type" in items:
        return f"array of {_kind(items)}"
    return name


def _budget(workflow: Workflow) -> list[tuple[str, str]]:
    budget = workflow.budget or {}
    return [
        (key, f"${budget[key]:g}" if key == "maxCost" else _amount(key, budget[key]))
        for key in BUDGET_OPTIONS
        if key in budget
    ]


def _amount(key: str, value: float) -> str:
    return duration_text(value) if key == "maxWallTime" else f"{value:,.0f}"


def _code(instance: Instance, workflow: ResolvedWorkflow) -> dict[str, Any]:
    """Return the files of a version as written, or a `problem`, and the number of lines that are left out."""
    try:
        if workflow.workflow.code is not None:
            files = {"": instance.registry.code_of(workflow.hash)}
        elif workflow.commit is not None:
            files = instance.registry.files(Oid(hex=workflow.commit))
        else:
            files = {}
    except UwfError as error:
        return {"problem": error.message, "files": [], "hidden": 0}
    room, hidden, shown = LINES, 0, []
    for name, data in files.items():
        lines = data.decode("utf-8", "replace").splitlines()
        hidden += max(0, len(lines) - room)
        shown.append((name, "\n".join(lines[:room])))
        room = max(0, room - len(lines))
    return {"problem": "", "files": shown, "hidden": hidden}
