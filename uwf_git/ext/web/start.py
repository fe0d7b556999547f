"""`/start`: the form that starts a thread, and its request."""

from __future__ import annotations

import shlex

from uwf_git.ext.web.actions import ActionRequest, budget_options
from uwf_git.ext.web.forms import Form
from uwf_git.ext.web.possible import limit_names
from uwf_git.plugin import (
    Call,
    Instance,
    NotFound,
    Page,
    PageRequest,
    ThreadId,
    Usage,
    file_names,
    name_problem,
    parse_budget_option,
)


def page(instance: Instance, request: PageRequest) -> Page:
    """Show a form with all workflows; `workflow` in the query is preselected."""
    chosen = request.one("workflow")
    known = registered(instance)
    workflow = shlex.quote(chosen) if chosen else "WORKFLOW"
    return Page(
        "start.html",
        "Start a thread",
        {
            "workflows": known,
            "files": [name for name in workflows(instance) if name not in known],
            "chosen": chosen,
            "limits": limit_names(),
            "command_line": f"uwf thread start {workflow} -p TEXT",
        },
    )


def start_request(instance: Instance, form: Form) -> ActionRequest:
    """Return the request to start a thread. Raises Usage, NotFound for unlisted workflows, since other names
    could be any file."""
    workflow = form.fields.get("workflow", "")
    if workflow not in workflows(instance):
        raise NotFound(f"no workflow {workflow!r} here", "choose one of the list")
    prompt = form.text("prompt")
    if not prompt:
        raise Usage("there is no task", "describe the task")
    persona, limits = form.option("persona"), form.limits()

    def do(call: Call) -> ThreadId:
        from uwf_git.plugin import ThreadStart, begin_thread

        budget = {key: parse_budget_option(key, text) for key, text in limits.items()}
        return begin_thread(call, workflow, ThreadStart(prompt, budget), persona=persona or None).thread

    speaker = [f"--as={persona}"] if persona else []
    return ActionRequest(
        ("thread", "start", "--prompt=-", *speaker, *budget_options(limits), "--", workflow), prompt, do
    )


def registered(instance: Instance) -> list[str]:
    from uwf_git.plugin import definition_addresses as addresses

    return [*instance.registry.names(), *addresses(instance.store)]


def workflows(instance: Instance) -> list[str]:
    """Return registered workflows, then those in `.uwf/workflows` and configured folders."""
    files = sorted(name for name in file_names(instance.location.root) if not name_problem(name))
    return list(dict.fromkeys([*registered(instance), *files]))
