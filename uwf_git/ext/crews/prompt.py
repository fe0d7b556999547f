"""The prompt of a crew's role besides the common parts: rules, tools, persona, run, node, data file.

Each part is a pure function of the history; `node_prompt` orders them among those of `kit.prompt`.
RUN_DIRECTIVE and USER_INPUT are known to packages: a name and lines of `- field: value`, for USER_INPUT with
the words below.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uwf_git.ext.crews.package import path_problem
from uwf_git.ext.crews.state import STATE, MatchedEdge, reached, ways
from uwf_git.plugin import (
    BMAD,
    END,
    FAIL,
    MOUNT_PLACEHOLDERS,
    PACKAGE_MOUNT,
    PROJECT_MOUNT,
    REDACTED,
    USER,
    PackageNode,
    Role,
    StepContext,
    asks_human,
    fenced,
    one_line,
    printable,
    split_remarks,
)

if TYPE_CHECKING:
    from uwf_git.plugin import History, Recipient

STARTS, CONTINUES, RESUMES = "start", "continue", "resume"
"""What a run is asked to do: to begin, to go on, or to go on where it was broken off or had ended."""
ARTIFACTS = "@project/artifacts/"
"""Where products belong."""
FORMATS = ("json", "yaml", "csv", "xml", "text")
"""What a file that a menu brings along may be."""
"""What stands in place of a secret."""
_DATA = re.compile(
    r"(.+) \((\w+), (?:the beginning of )?(\d{1,15}) bytes(?:; the rest is there to be read)?\)"
)
_GOES_ON = "The run had ended, and the user goes on with it."
_RULES = f"""\
- You speak as the persona below, and do one node of a workflow: yours. Whoever comes next does the rest, so end with
  your answer once it is done.
- Autopilot: go on without asking whether you may. Ask a human only for what is really missing and can't be found, by
  the block of fields for that, and nothing else in your answer.
- Files have names that begin with @project (the folder of the project), @pkg (the package, to be read) or @state (this
  run). What you make belongs below {ARTIFACTS}, unless your node says otherwise.
- How far the run is follows from its answers, and {STATE} tells it. Where a text has you write there, that
  counts as a part of your answer; what your answer itself says goes before it."""


def node_prompt(
    history: History,
    role: Role,
    schema: Any,
    instruction: str | None,
    answer_of: Callable[[StepContext], str],
    recipient: Recipient,
    quota: int,
) -> str:
    """Return the prompt for a node. Persona and node are repeated if another node has spoken since."""
    from uwf_git.plugin import (
        format_instruction,
        happened_before,
        instruction_now,
        prompt_commands,
        turns_of,
        unforged_text,
    )

    heard, remarks = split_remarks(history.steps)
    before = history._replace(steps=tuple(heard))  # questions and answers, without remarks
    own = max(turns_of(history.steps, role.name, recipient.agent), default=0)
    resumes = recipient.resumes
    remembers = resumes or (recipient.remembers and own > 0)
    since = history.steps[own:]
    anew = not remembers or (not resumes and any(step.role not in (role.name, USER) for step in since))
    parts = []
    if not remembers:
        parts = [rules(format_instruction(schema)), folders(recipient.folders), policy(history, role)]
        parts += [prompt_commands(history) if recipient.shell else ""]
    if anew:
        parts.append(speaks(history, role))
    parts.append(directive(before, role, resumes))
    if anew:
        parts.append(brief(history, role))
    if not remembers:
        parts += [f"# The task\n\n{unforged_text(history.start.prompt)}", brought(history)]
    if anew and history.steps:
        parts.append(happened_before(history, answer_of, own if remembers else 0, quota))
        parts.append(progress_text(history, role))
    last = heard[-1] if heard else None
    if last is not None and last.role == USER:
        is_answer = answered(before) is not None
        text = str(last.output.get("answer", "")) if isinstance(last.output, dict) else str(last.output)
        continuation = (
            "" if is_answer else (instruction or "").strip().removesuffix(text.strip()).strip() or _GOES_ON
        )
        parts.append(f"# Your instruction now\n\n{instruction_now(heard, continuation)}")
        parts.append(user_input(role.name if is_answer else "", text))
    else:
        parts.append(f"# Your instruction now\n\n{instruction_now(heard, instruction)}")
    parts += [user_input("", text) for text in remarks]
    return "\n\n".join(filter(None, parts)) + "\n"


def intent(history: History, resumes: bool = False) -> str:
    """Return the run's current task. `resumes`: an attempt was interrupted or failed."""
    if resumes or (answered(history) is None and history.steps and history.steps[-1].role == USER):
        return RESUMES
    return CONTINUES if history.steps else STARTS


def answered(history: History) -> StepContext | None:
    """Return the answer that a node gets now, or None."""
    if len(history.steps) < 2 or history.steps[-1].role != USER:
        return None
    asker = next((step for step in reversed(history.steps) if step.role != USER), None)
    return history.steps[-1] if asker is not None and asks_human(asker.output) else None


def rules(deliverable: str) -> str:
    """Return the rules for every node. `deliverable` is its answer's form."""
    return f"# Base rules\n\n{_RULES}\n\n## Deliverable format\n\n{deliverable}"


def folders(named: Mapping[str, Path]) -> str:
    """Return the folders' paths for agents that use the machine's paths, else ""."""
    lines = [f"- {name} is `{path}`" for name, path in named.items()]
    return "# Folders\n\nOn this machine:\n\n" + "\n".join(lines) if lines else ""


def policy(history: History, role: Role) -> str:
    """Return the tools permitted by workflow and persona, or ""."""
    lines = [*_limits("This workflow", role.tools)]
    persona = history.cast.role(role.name).persona
    if persona is not None:
        lines += _limits(persona.name, persona.tools)
    if not lines:
        return ""
    limits = "\n".join(f"- {line}" for line in lines)
    return f"# Tool policy\n\nOf the tools that you have:\n\n{limits}"


def _limits(who: str, tools: Mapping[str, Any] | None) -> Iterable[str]:
    permissions = tools or {}
    for key, verb in (
        ("allow", "uses only"),
        ("deny", "doesn't use"),
        ("servers", "uses only the MCP servers"),
    ):
        if key in permissions:
            yield f"{who} {verb} {', '.join(map(str, permissions[key])) or 'none'}."
    for key, verb in (
        ("files", "reads and writes no files"),
        ("mcp", "uses no MCP servers"),
        ("runCommand", "runs no commands"),
        ("network", "uses no network"),
    ):
        if permissions.get(key) is False:
            yield f"{who} {verb}."
    for key, verb in (("maxReadBytes", "reads"), ("maxWriteBytes", "writes")):
        if key in permissions:
            yield f"{who} {verb} at most {permissions[key]} bytes of a file."


def speaks(history: History, role: Role) -> str:
    """Return the persona's description, or ""."""
    persona = history.cast.role(role.name).persona
    if persona is None:
        return ""
    if persona.system_prompt.strip():
        return f"# Persona: {persona.name}\n\n{in_words(persona.system_prompt.strip())}"
    title = ", ".join(filter(None, (persona.name, persona.title)))
    parts = [f"You are {title}." + (f" {persona.description}" if persona.description.strip() else "")]
    traits = (("Role", persona.role), ("Identity", persona.identity), ("How you speak", persona.style))
    parts += [f"{name}: {text.strip()}" for name, text in traits if text.strip()]
    for name, texts in (("Your principles", persona.principles), ("You always", persona.actions)):
        if texts:
            parts.append(f"{name}:\n\n" + "\n".join(f"- {item.strip()}" for item in texts))
    return in_words(f"# Persona: {persona.name}\n\n" + "\n\n".join(parts))


def directive(history: History, role: Role, resumes: bool = False) -> str:
    """Return RUN_DIRECTIVE: the run, its state, and its task."""
    crew = history.workflow.crew
    assert crew is not None
    fields = {
        "runType": "bmad-micro" if crew.format == BMAD else "crew",
        "intent": intent(history, resumes),
        "workflow": crew.workflow,
        "state": STATE,
        "graph": f"@pkg/{crew.graph}" if crew.graph else "",
        "artifactsRoot": ARTIFACTS,
        "currentNodeId": role.name,
        "effectiveAgentId": history.cast.role(role.name).speaker,
        "autopilot": "true",
    }
    return _form("RUN_DIRECTIVE", fields)


def brief(history: History, role: Role) -> str:
    """Return the node's document, inputs, outputs and next nodes."""
    node = role.node or PackageNode("step", "")
    parts = [f"# Your node: {role.name}" + (f", {node.title}" if node.title else "")]
    lines = [f"- Document: @pkg/{node.file}"] if node.file else []
    lines += [f"- Reads: {', '.join(map(_below_project, node.inputs))}"] if node.inputs else []
    lines += [f"- Makes: {', '.join(map(_below_project, node.outputs))}"] if node.outputs else []
    if leads := [_describe(way) for way in ways(history.workflow, role.name)]:
        lines.append("- Allowed next:\n" + "\n".join(f"  - {item}" for item in leads))
    elif history.workflow.graph.get(role.name):
        lines.append("- Allowed next: none. This node ends the run.")
    parts.append("\n".join(lines))
    parts += [
        f"## {name}\n\n{in_words(text.strip())}"
        for name, text in (
            ("What it is for", role.description),
            ("Its text", role.system_prompt),
            ("Goal", role.goal),
            ("Capabilities", "\n".join(f"- {item}" for item in role.capabilities)),
            ("Procedure", role.procedure),
            ("Output", role.output),
        )
        if text.strip()
    ]
    return "\n\n".join(filter(None, parts))


def _describe(way: MatchedEdge) -> str:
    ends = {END: "the end of the run", FAIL: "the end of the run, as failed"}
    target = ends.get(way.target, f"`{way.target}`")
    how = f" on `{way.label}`" if way.label else ""
    condition = f": {in_words(way.when)}" if way.when else ""
    return f"{target}{how}{condition}" + (" (what the run has reached decides that)" if way.tested else "")


def brought(history: History) -> str:
    """Return the menu's data file, or ""."""
    data = history.start.data
    return f"# Data given with this run\n\n{data_message(data)}" if data is not None else ""


def data_message(data: Mapping[str, Any]) -> str:
    whole, text = data["size"], data["text"]
    cut = len(text.encode("utf-8", "replace")) < whole
    size = f"the beginning of {whole} bytes; the rest is there to be read" if cut else f"{whole} bytes"
    form = data["format"] if data["format"] in FORMATS else "text"
    return f"{printable(data['path'])} ({form}, {size}):\n\n{fenced(text, form)}"


def data_in(message: str) -> dict[str, Any] | None:
    """The inverse of `data_message`; None for other texts."""
    head, _, block = message.partition(":\n\n")
    match = _DATA.fullmatch(head)
    text = "\n".join(block.split("\n")[1:-1])
    if match is None or block != fenced(text, match[2]):
        return None
    return {"path": match[1], "format": match[2], "text": text, "size": int(match[3])}


def data_problem(data: Mapping[str, Any], file: Callable[[str], bytes | None]) -> str | None:
    """Return why a StartNode's `data` cannot come from a menu, or None. `file` returns a package's file or
    None."""
    path, text, size = data["path"], data["text"], data["size"]
    mount, _, rest = path.partition("/")
    if mount not in (PROJECT_MOUNT, PACKAGE_MOUNT) or not rest or path_problem(rest) is not None:
        return f"{one_line(path, 80)!r} is no path of a file below {PROJECT_MOUNT} or {PACKAGE_MOUNT}"
    if data["format"] not in FORMATS:
        return f"{one_line(data['format'], 40)!r} is none of the formats {', '.join(FORMATS)}"
    kept = REDACTED.split(text)
    if sum(len(piece.encode("utf-8", "replace")) for piece in kept) > size:
        return f"{path} is said to have {size} bytes, and its beginning has more"
    if mount == PROJECT_MOUNT:
        return None
    content = file(rest)
    if content is None:
        return f"there is no {path} in the package"
    whole = content.decode("utf-8-sig", "replace")
    # Which secrets were taken out isn't known, so what is left must be there in its order.
    at = 0
    for number, piece in enumerate(kept):
        at = whole.find(piece, at) if number else (0 if whole.startswith(piece) else -1)
        if at < 0:
            return f"the text is not that of {path} in the package"
        at += len(piece)
    return None if len(whole.encode()) == size else f"{path} has not {size} bytes in the package"


def progress_text(history: History, role: Role) -> str:
    """Return the run's progress before this node, or ""."""
    from uwf_git.plugin import dump_yaml

    now = reached(history, role.name).as_json()
    progress = {key: now[key] for key in ("stepsCompleted", "variables", "artifacts") if now[key]}
    return f"# What the run has reached\n\n{fenced(dump_yaml(progress).rstrip(), 'yaml')}" if progress else ""


def user_input(node: str, text: str) -> str:
    """Return USER_INPUT: a person's text, with the node that asked or ""."""
    return f"{_form('USER_INPUT', {'forNodeId': node})}\n{text.strip()}"


def _form(name: str, fields: Mapping[str, str]) -> str:
    return "\n".join([name, *(f"- {key}: {value}" for key, value in fields.items() if value)])


def _below_project(path: str) -> str:
    path = in_words(path)
    return path if path.startswith("@") else f"@project/{path}"


def in_words(text: str) -> str:
    """Replace packages' placeholders by folder names."""
    for word, name in MOUNT_PLACEHOLDERS.items():
        text = text.replace(word, name)
    return text
