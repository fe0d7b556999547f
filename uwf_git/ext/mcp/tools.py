"""The tools of `uwf mcp` as commands: names, schemas and annotations, and from arguments to command lines. No
tool takes an agent: a client that could name one could run anything."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from uwf_git.plugin import (
    ACTIVE_STATES,
    STEP_TABS,
    SUFFIXES,
    Instance,
    ThreadState,
    Usage,
    WantedParts,
    board,
    inbox,
    inbox_groups,
    nearest,
    parse_filters,
    step_view,
    thread_states,
)

LONGEST = 1000
LARGEST = 4 << 20
QUOTA = 40_000
"""Characters of a thread that are read unless a client says otherwise."""
WAIT = "wait"


class Call(NamedTuple):
    """A command, or a `value` of a store. `wrap` names a list in the result, which must be an object; `source` is a
    file for its folder, by the name `source_name`. `apart`: it needs a process."""

    argv: tuple[str, ...] = ()
    stdin: str | None = None
    wrap: str = ""
    source: str | None = None
    apart: bool = False
    source_name: str = "workflow.yaml"
    value: Callable[[Instance], Any] | None = None


class ServedTool(NamedTuple):
    """A tool. `properties` are JSON Schemas, `required` arguments, `either` exclusive ones. Without `writes`
    it changes no thread; `destroys`, `repeatable` and `open` are MCP's hints. `call` makes the command from
    valid arguments and the server's folder."""

    name: str
    title: str
    description: str
    properties: Mapping[str, Any]
    call: Callable[[Mapping[str, Any], Path], Call]
    required: tuple[str, ...] = ()
    either: tuple[str, ...] = ()
    writes: bool = False
    destroys: bool = False
    repeatable: bool = False
    open: bool = False

    @property
    def schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = {
            "type": "object",
            "properties": dict(self.properties),
            "additionalProperties": False,
        }
        if self.required:
            schema["required"] = list(self.required)
        return schema

    def parse(self, arguments: Mapping[str, Any], folder: Path) -> Call:
        """Return the command for arguments. Raises Usage with the argument."""
        import jsonschema

        if unknown := sorted(set(arguments) - set(self.properties)):
            hint = nearest(unknown[0], self.properties) or "it takes: " + ", ".join(self.properties)
            raise Usage(f"{self.name} has no argument {unknown[0]!r}", hint)
        validator = jsonschema.Draft202012Validator(self.schema)
        if problem := next(iter(validator.iter_errors(dict(arguments))), None):
            where = "".join(f"{part}: " for part in problem.absolute_path)
            raise Usage(f"{self.name}: {where}{problem.message[:300]}", "see the tool's schema")
        if self.either and len([name for name in self.either if name in arguments]) != 1:
            raise Usage(f"{self.name} takes either {' or '.join(self.either)}", "give exactly one of them")
        for name, value in arguments.items():
            if isinstance(value, str) and "\0" in value:
                raise Usage(f"{self.name}: {name} holds a NUL", "leave it out")
        defaults = {name: item["default"] for name, item in self.properties.items() if "default" in item}
        return self.call({**defaults, **arguments}, folder)


def _text(description: str, most: int = LONGEST, **more: Any) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "maxLength": most, "description": description, **more}


def _number(description: str, least: int, **more: Any) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "maximum": 1 << 31, "description": description, **more}


_ACTIVE = thread_states.words(state for state in ThreadState if state in ACTIVE_STATES)
_THREAD = _text("A thread's id, or the beginning of one (four characters and more).")
_WORKFLOW = _text(
    "A workflow: its registered name, CREW/ID for one of a crew, its hash, or a file of the folder the server works in."
)
_SOURCE = _text(
    "A workflow's YAML text, or a workflow script, instead of one that is stored somewhere.", LARGEST
)
_SCRIPT = re.compile(r"^export\s+const\s+meta\b", re.M)
_PYTHON = re.compile(r"^async def run\(", re.M)


def _file_of(source: str) -> str:
    """Return the name of the file that a source is written to."""
    source = source.removeprefix("\ufeff")
    if _SCRIPT.search(source):
        return "workflow.js"
    return "workflow.py" if _PYTHON.search(source) else "workflow.yaml"


def _of_source(source: str, *argv: str, stdin: str | None = None) -> Call:
    """Return the call of a command whose last argument is the file with a source."""
    name = _file_of(source)
    return Call((*argv, f"./{name}"), stdin, source=source, apart=True, source_name=name)


def _within(text: str, folder: Path, what: str) -> Path:
    """Return a client's path inside the folder. Raises Usage."""
    path = (folder / text).resolve()
    if not path.is_relative_to(folder):
        raise Usage(f"{what} {text!r} is outside of {folder}", "start the server there: uwf mcp --cwd DIR")
    return path


def _workflow(arguments: Mapping[str, Any], folder: Path) -> str:
    text = str(arguments["workflow"])
    if "/" in text or Path(text).suffix.lower() in SUFFIXES or (folder / text).is_file():
        _within(text, folder, "workflow")
    return text


def _options(arguments: Mapping[str, Any], **options: str) -> list[str]:
    words = []
    for name, option in options.items():
        value = arguments.get(name)
        if value is True:
            words.append(option)
        elif value is not None and value is not False:
            words.append(f"{option}={value}")
    return words


def _validate(arguments: Mapping[str, Any], folder: Path) -> Call:
    if "source" in arguments:
        source = arguments["source"]
        name = _file_of(source)
        return Call(("workflow", "validate", name), source=source, apart=True, source_name=name)
    _within(arguments["file"], folder, "file")
    return Call(("workflow", "validate", "--", arguments["file"]), apart=True)


def _rehearse(arguments: Mapping[str, Any], folder: Path) -> Call:
    if "source" in arguments:
        return _of_source(arguments["source"], "workflow", "rehearse")
    return Call(("workflow", "rehearse", "--", _workflow(arguments, folder)), apart=True)


def _list_threads(arguments: Mapping[str, Any], _folder: Path) -> Call:
    options = {name: f"--{name}" for name in ("all", "status", "workflow", "limit", "offset")}
    return Call(("thread", "list", *_options(arguments, **options)), wrap="threads")


def _board(arguments: Mapping[str, Any], _folder: Path) -> Call:
    def value(instance: Instance) -> dict[str, Any]:
        view = f"--view {shlex.quote(arguments['view'])} " if "view" in arguments else ""
        wanted = parse_filters(instance, view + arguments.get("filter", ""))
        group = thread_states.Group(arguments["group"]) if "group" in arguments else None
        return board(instance, wanted, group, first=arguments["offset"], most=arguments["limit"])

    return Call(value=value)


def _show_step(arguments: Mapping[str, Any], _folder: Path) -> Call:
    def value(instance: Instance) -> dict[str, Any]:
        head = instance.threads.head(instance.threads.find(arguments["thread"]))
        wanted = WantedParts(tabs=tuple(arguments["parts"]), turns_room=QUOTA)
        return step_view(instance, head, arguments["number"], wanted)

    return Call(value=value)


def _inbox(arguments: Mapping[str, Any], _folder: Path) -> Call:
    only = [arguments["group"]] if "group" in arguments else ()
    return Call(wrap="waiting", value=lambda instance: inbox(instance, arguments.get("for"), only))


def _thread(
    command: str,
    subject: str = "thread",
    wrap: str = "",
    apart: bool = False,
    message: str = "",
    **options: str,
) -> Callable[[Mapping[str, Any], Path], Call]:
    """Return the call of a command about a thread, or another `subject`; `message` is the argument that it reads."""

    def call(arguments: Mapping[str, Any], _folder: Path) -> Call:
        option = ["--message=-"] if message in arguments else []
        words = ("thread", command, *option, *_options(arguments, **options), "--", arguments[subject])
        return Call(words, arguments.get(message), wrap=wrap, apart=apart)

    return call


def _start(arguments: Mapping[str, Any], folder: Path) -> Call:
    cwd = _within(arguments.get("cwd", "."), folder, "cwd")
    options = ("--prompt=-", f"--cwd={cwd}", *_options(arguments, persona="--as"))
    if "source" in arguments:
        argv = ("thread", "start", *options, "--")
        return _of_source(arguments["source"], *argv, stdin=arguments["prompt"])
    workflow = _workflow(arguments, folder)
    return Call(("thread", "start", *options, "--", workflow), stdin=arguments["prompt"])


def _extract(arguments: Mapping[str, Any], folder: Path) -> Call:
    options = _options(arguments, prompt="--prompt", thread="--thread")
    schema = arguments["schema"]
    shown = schema if isinstance(schema, str) else json.dumps(schema)
    if isinstance(schema, str) and ("/" in schema or Path(schema).suffix or (folder / schema).is_file()):
        _within(schema, folder, "schema")
    argv = ("extract", f"--schema={shown}", *options)
    if "file" in arguments:
        _within(arguments["file"], folder, "file")
        return Call((*argv, "--", arguments["file"]), wrap="data", apart=True)
    text = ("--", "-") if "text" in arguments else ()
    return Call((*argv, *text), stdin=arguments.get("text"), wrap="data", apart=True)


def _answer(arguments: Mapping[str, Any], _folder: Path) -> Call:
    options = _options(arguments, step="--for", other="--other", unseen="--unseen", code="--code")
    fields = [
        f"--field={name}={text}"
        for name, texts in arguments.get("fields", {}).items()
        for text in (texts if isinstance(texts, list) else [texts])
    ]
    message_option = ["--message=-"] if "answer" in arguments else []
    return Call(
        ("thread", "answer", *message_option, *fields, *options, "--", arguments["thread"]),
        stdin=arguments.get("answer"),
    )


TOOLS = (
    ServedTool(
        "list_workflows",
        "List workflows",
        "The registered workflows with what they are for.",
        {},
        lambda _arguments, _folder: Call(("workflow", "list"), wrap="workflows"),
    ),
    ServedTool(
        "show_workflow",
        "Show a workflow",
        "A workflow's roles with the schemas of their answers, its conditions and its graph.",
        {"workflow": _WORKFLOW},
        lambda arguments, folder: Call(("workflow", "show", "--", _workflow(arguments, folder))),
        ("workflow",),
    ),
    ServedTool(
        "validate_workflow",
        "Validate a workflow",
        "Every problem of a workflow's YAML at once, with line, column and a hint. Nothing is stored.",
        {"file": _text("A file of the folder the server works in."), "source": _SOURCE},
        _validate,
        either=("file", "source"),
    ),
    ServedTool(
        "rehearse_workflow",
        "Rehearse a workflow",
        "Walks a workflow's graph with made-up answers and reports edges never taken, roles never reached "
        "and where it gets stuck. No agent works and nothing is stored.",
        {"workflow": _WORKFLOW, "source": _SOURCE},
        _rehearse,
        either=("workflow", "source"),
    ),
    ServedTool(
        "guide",
        "Read a guide",
        "How to write a workflow, a workflow script or an agent, and how to drive uwf.",
        {"topic": {"enum": ["scripts", "workflows", "agents", "uwf"], "description": "What to read about."}},
        lambda arguments, _folder: Call(("guide", arguments["topic"])),
        ("topic",),
    ),
    ServedTool(
        "list_threads",
        "List threads",
        f"Runs of workflows, newest first: {', '.join(_ACTIVE[:-1])} and {_ACTIVE[-1]} ones, with `all` also "
        "those that have ended. A branch has its `parent`.",
        {
            "all": {"type": "boolean", "description": "Also those that have ended."},
            "status": {"enum": list(thread_states.WORDS), "description": "Only these."},
            "workflow": _text("Only of this name or hash."),
            "limit": _number("At most so many.", 1, default=50),
            "offset": _number("Leave out the first so many.", 0, default=0),
        },
        _list_threads,
    ),
    ServedTool(
        "list_running",
        "List what runs",
        "The steps that are being made on this machine: thread, role, agent, since when, the model's turns and "
        "tokens so far, and the last line that was said or printed.",
        {},
        lambda _arguments, _folder: Call(("ps",), wrap="running"),
    ),
    ServedTool(
        "board",
        "Show the board",
        "A list of threads as list_threads has it, with its head: how many are waiting, running, failed and done, "
        "the agents at work, and what was spent today. Each thread has the role at work or next in `now`, and in "
        "`line` what its agent said last, what it asks, why it failed, or what its last step came to.",
        {
            "filter": _text(
                "Options of `uwf thread list` and words of the task, as in: --status failed --since 12h csv. --all "
                "also has those that have ended."
            ),
            "view": _text("A saved filter: last-night, mine, expensive, or one of the user's."),
            "group": {"enum": [group.value for group in thread_states.Group], "description": "Only these."},
            "limit": _number("At most so many.", 1, default=50),
            "offset": _number("Leave out the first so many.", 0, default=0),
        },
        _board,
    ),
    ServedTool(
        "inbox",
        "List what waits for the user",
        "What the user has to do, by `group`: threads that ask (the question with its options and who asks it, or a "
        "role that the user plays), that failed, whose budget is used up, or whose work is ready to land; since "
        "when, and the commands that go on.",
        {
            "group": {"enum": list(inbox_groups()), "description": "Only these."},
            "for": _text("What this person may do: a name, an address, or me."),
        },
        _inbox,
    ),
    ServedTool(
        "show_thread",
        "Show a thread",
        "Where a thread is: its status, whose turn is next, the question it asks, why it failed; of one that waits "
        "for the user, under `shown` what they judge: the task, the last output, the verdicts, the changes of code, "
        "and whether a merge will conflict; of one that is joining, the branches that it waits for, each a thread to "
        "step.",
        {"thread": _THREAD},
        _thread("show"),
        ("thread",),
    ),
    ServedTool(
        "read_thread",
        "Read a thread",
        "A thread's prompt and its newest steps, with their outputs and answers word for word. `omitted` "
        "says how many older ones were left out under the quota; read them with `before`.",
        {
            "thread": _THREAD,
            "quota": _number("About so many characters; the newest step is always there.", 1, default=QUOTA),
            "before": _text("Only the steps before this one: its hash, or the beginning of it."),
        },
        _thread("read", quota="--quota", before="--before"),
        ("thread",),
    ),
    ServedTool(
        "thread_steps",
        "List a thread's steps",
        "All steps of a thread with their roles, agents and outputs, oldest first, without the answers.",
        {"thread": _THREAD},
        _thread("steps", wrap="steps"),
        ("thread",),
    ),
    ServedTool(
        "thread_timeline",
        "Show a thread as bars",
        "A thread's newest steps as bars on one clock, with its failed attempts and branches: when each began, waited "
        "and ended, what it cost and came to; and the graph with the ways that were taken.",
        {"thread": _THREAD, "before": _number("Only the steps before this number.", 1)},
        _thread("timeline", before="--before"),
        ("thread",),
    ),
    ServedTool(
        "show_step",
        "Show a step in parts",
        "A step with what it took and cost, each part of bounded size: its result, the files that it changed with the "
        "lines of their patch, its turns, its prompt, its record.",
        {
            "thread": _THREAD,
            "number": _number("The step's number.", 1),
            "parts": {
                "type": "array",
                "items": {"enum": list(STEP_TABS)},
                "default": ["result", "changes"],
                "description": "Which parts.",
            },
        },
        _show_step,
        ("thread", "number"),
    ),
    ServedTool(
        "thread_attempts",
        "List failed attempts",
        "The failed attempts at a thread's steps, with their errors, oldest first.",
        {"thread": _THREAD},
        _thread("attempts", wrap="attempts"),
        ("thread",),
    ),
    ServedTool(
        "thread_turns",
        "Show an agent's turns",
        "What the agent said and which tools it called: in the step that is running so far, else in the last "
        "one, or in the step or failed attempt given.",
        {"thread": _THREAD, "step": _text("The hash of a step or failed attempt, or the beginning of it.")},
        _thread("turns", wrap="turns", step="--step"),
        ("thread",),
    ),
    ServedTool(
        "step_details",
        "Show a step",
        "One step or failed attempt in full: its output, the answer, every turn and tool call, the tokens.",
        {"step": _text("A step's hash, or the beginning of one.")},
        _thread("step-details", "step"),
        ("step",),
    ),
    ServedTool(
        "extract",
        "Extract data",
        "Reads data that obeys a JSON Schema out of a text, a file or a thread. JSON and fields that stand there are "
        "taken as they are; else the model that the user has configured for it reads them.",
        {
            "schema": {
                "anyOf": [{"type": "object"}, {"type": "string", "minLength": 1, "maxLength": LONGEST}],
                "description": "A JSON Schema, or the name of one: a file of the server's folder, or a type.",
            },
            "text": _text("The text to read.", LARGEST),
            "file": _text("A file to read, of the folder the server works in."),
            "thread": _text("A thread to read; with a text or file, what that belongs to."),
            "prompt": _text("What to look for.", LARGEST),
        },
        _extract,
        ("schema",),
        open=True,
    ),
    ServedTool(
        "start_thread",
        "Start a thread",
        "Starts a run of a workflow with a task. No agent works yet: that is for step_thread. With `source` it is of a "
        "workflow, or a workflow script, that you have written (guide: scripts). Code is proposed so: the result names "
        "the command by which the user reads and trusts it, and until then no step is made.",
        {
            "workflow": _WORKFLOW,
            "source": _SOURCE,
            "prompt": _text("The task.", LARGEST),
            "persona": _text(
                "Of a crew's workflow: who speaks where it names nobody; else the crew's first."
            ),
            "cwd": _text("Where agents work: the folder the server works in, or one below it."),
        },
        _start,
        ("prompt",),
        either=("workflow", "source"),
        writes=True,
    ),
    ServedTool(
        "step_thread",
        "Do a thread's next step",
        "Lets the agent configured for the next role work, which may take minutes, and keeps what it made. "
        "Afterwards the thread is idle (step it again), waiting (answer_thread), joining (step its branches, which "
        "show_thread lists), paused, completed or failed. With "
        "`wait` it returns after so many seconds at the latest, and the step goes on while the server runs: "
        "the thread is `running` then, and show_thread tells when it no longer is.",
        {
            "thread": _THREAD,
            WAIT: {
                "type": "number",
                "minimum": 0,
                "maximum": 86400,
                "description": "Seconds to wait for the end of the step; as long as it takes if left out.",
            },
        },
        _thread("step", apart=True),
        ("thread",),
        writes=True,
        destroys=True,
        open=True,
    ),
    ServedTool(
        "retry_thread",
        "Try a failed thread again",
        "Lets a thread run on whose last attempt failed. One that ended at $FAIL stays as it is: its fork before the "
        "step that led there runs, whose id is in the result. It runs in the background, also without this server, "
        "until it ends, asks or fails: show_thread tells where it is, and pause_thread stops it.",
        {"thread": _THREAD},
        lambda arguments, _folder: Call(
            ("thread", "retry", "--detach", "--", arguments["thread"]), apart=True
        ),
        ("thread",),
        writes=True,
        destroys=True,
        open=True,
    ),
    ServedTool(
        "answer_thread",
        "Answer a thread's question",
        "Answers a thread that is waiting, on behalf of the user; the role that asked goes next. A thread that waits "
        "for a person's role takes the `fields` that `inbox` lists. Ask the user first, and show them what "
        "show_thread has under `shown`: the question was meant for a human.",
        {
            "thread": _THREAD,
            "answer": _text("The answer.", LARGEST),
            "fields": {
                "type": "object",
                "description": "The fields of a person's role, by name.",
                "propertyNames": {"pattern": "^[^=]+$"},
                "additionalProperties": {
                    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]
                },
            },
            "step": _text("The step that asks: refuses if by now another one does."),
            "other": {
                "type": "boolean",
                "description": "Where the question has options: answer something else than one of them.",
            },
            "code": _text("The code that is judged, `state` in what is shown: refuses if it has changed."),
            "unseen": {
                "type": "boolean",
                "description": "Answer for a role that judges code which is not on this machine, so that nobody can "
                "have seen it here.",
            },
        },
        _answer,
        ("thread",),
        writes=True,
    ),
    ServedTool(
        "say_to_thread",
        "Say something to a thread",
        "Send a message from the user to a thread that is not waiting for an answer. The next step's agent gets it; "
        "the next role stays the same. Use answer_thread for a waiting thread, resume_thread for one that has ended.",
        {"thread": _THREAD, "message": _text("What to say.", LARGEST)},
        _thread("say", message="message"),
        ("thread", "message"),
        writes=True,
    ),
    ServedTool(
        "fork_thread",
        "Fork a thread",
        "Makes a second thread that shares the first's past, up to its head or an earlier step.",
        {
            "origin": _text("A thread's id or a step's hash, or the beginning of one."),
            "at": _number("After the step of this number; 0 is the start.", 0),
            "fromRole": _text("Before the last step of this role."),
        },
        _thread("fork", "origin", at="--at", fromRole="--from-role"),
        ("origin",),
        writes=True,
    ),
    ServedTool(
        "pause_thread",
        "Pause a thread",
        "Keeps a thread from being stepped until resume_thread. A step in progress comes to its end first; with "
        "`now` it is ended, and the next step goes on in its session.",
        {
            "thread": _THREAD,
            "now": {"type": "boolean", "description": "End the step in progress."},
            "reason": _text("Why, for those who come to step it."),
        },
        _thread("pause", now="--now", reason="--message"),
        ("thread",),
        writes=True,
        repeatable=True,
    ),
    ServedTool(
        "resume_thread",
        "Resume a thread",
        "Lets a paused thread be stepped again. With `message` it goes on from a thread that has ended: a new one, "
        "whose id is in the result, shares its past, and the role that its workflow names for that is told the "
        "message. It does no step itself: that is for step_thread.",
        {"thread": _THREAD, "message": _text("What a thread that has ended goes on with.", LARGEST)},
        _thread("resume", message="message"),
        ("thread",),
        writes=True,
    ),
    ServedTool(
        "kill_thread",
        "Kill a thread",
        "Ends a thread for good, its running agent first. It can still be read and forked.",
        {"thread": _THREAD, "reason": _text("Why, for those who read it later.")},
        _thread("kill", reason="--reason"),
        ("thread",),
        writes=True,
        destroys=True,
        repeatable=True,
    ),
)


def offered(read_only: bool) -> dict[str, ServedTool]:
    """Return the tools by name, or only reading ones."""
    return {tool.name: tool for tool in TOOLS if not (read_only and tool.writes)}
