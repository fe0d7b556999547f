"""`uwf-human`: the person at the terminal as an agent.

Asks for the fields of the role's schema one by one, or with `--editor` opens an editor on a form. Without a
terminal, or if the person leaves, the thread waits, and no attempt is recorded.
"""

from __future__ import annotations

import json
import os
import re
import select
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from uwf_git.kit import Context, Reply, create_agent
from uwf_git.plugin import (
    HUMAN,
    Absent,
    AgentFailed,
    ExpectedOutput,
    Invalid,
    Presented,
    RequirementUnmet,
    Schema,
    SchemaField,
    SchemaVariant,
    Usage,
    UwfError,
    coerce_value,
    command_at,
    describe_schema,
    fields_of,
    human_turn_of,
    judge_answer,
    normalise_payload,
    one_line,
    presented_code,
    processes,
    raise_if_unseen,
    read_typed,
    render_frontmatter,
    schema_choices,
    schema_types,
    schema_variants,
    system,
    terminal_undisturbed,
    text_of,
    warn_once,
    written_out,
)

USAGE = "uwf-human [--editor]"
_NOTE = "#:"


class Options(NamedTuple):
    editor: bool = False


def parse_args(args: Sequence[str]) -> Options:
    """Raises Usage."""
    if unknown := [argument for argument in args if argument != "--editor"]:
        raise Usage(f"uwf-human has no argument {unknown[0]}", USAGE)
    return Options("--editor" in args)


def run(ctx: Context) -> Reply:
    """Ask for the output. Raises Absent without a terminal or if the person leaves, AgentFailed if time runs
    out."""
    with terminal_undisturbed(), Terminal.of_stdin(ctx) as terminal:
        shown = presented_code(ctx.instance, ctx.instance.threads.head(ctx.thread), ctx.instruction or "")
        is_unseen = shown.code is not None and shown.code.is_unseen and not shown.code.fetch()
        introduction = _introduction(ctx, shown)
        if not ctx.options.editor or is_unseen:
            terminal.say(introduction + "\n\n")
        if is_unseen and terminal.ask("Answer without having seen the code? [yes/no]: ").strip() != "yes":
            raise_if_unseen(ctx.instance, ctx.history, ctx.role.name)
        if ctx.options.editor:
            return _edit(ctx, terminal, introduction)
        while True:
            output, report = _questions(ctx, terminal)
            problems = ctx.schema.problems(output)
            if not problems:
                return Reply(render_frontmatter(output, report), output=output)
            terminal.say("\nThat cannot be taken yet:\n" + _listed(problems) + "\nOnce more, please.\n\n")


class InputEnded(Absent):
    """The person ended the input (Ctrl-D)."""


class Terminal:
    """A terminal with a deadline."""

    def __init__(self, descriptor: int, ctx: Context) -> None:
        self.descriptor = descriptor
        self.deadline = ctx.deadline
        self._ctx = ctx
        self._pending = b""

    @classmethod
    def of_stdin(cls, ctx: Context) -> Terminal:
        """Return the terminal of standard input. Raises Absent, also within a step: no person is at its terminal."""
        try:
            if not sys.stdin.isatty():
                raise OSError
            name = os.ttyname(sys.stdin.fileno())
            descriptor = system.open_file(name, os.O_RDWR | system.O_NOCTTY)
        except (OSError, ValueError, AttributeError):
            head = ctx.instance.threads.head(ctx.thread)
            warn_once(ctx.instance, head)
            turn = human_turn_of(ctx.instance, head)
            if turn is not None and turn.standing is not None:
                turn.standing.raise_if_unmet(ctx.thread)
            # What a step leads to is shown with it.
            asks = f": {one_line(ctx.instruction, 200)}" if ctx.instruction and not ctx.history.steps else ""
            raise Absent(
                f"thread {ctx.thread} waits for a person to play role {ctx.role.name!r}{asks}", _way_back(ctx)
            ) from None
        try:
            what = f"plays role {ctx.role.name!r} of thread {ctx.thread}"
            ctx.instance.require_person(what, answers=True)
        except RequirementUnmet as error:
            os.close(descriptor)
            raise Absent(error.message, _way_back(ctx)) from None
        return cls(descriptor, ctx)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)

    def say(self, text: str) -> None:
        data = _shown(text).encode("utf-8", "replace")
        while data:
            data = data[os.write(self.descriptor, data) :]

    def ask(self, question: str) -> str:
        """Return a line. Raises InputEnded at the end of input, AgentFailed at the deadline."""
        self.say(question)
        while b"\n" not in self._pending:
            seconds = None if self.deadline is None else max(0.0, self.deadline - time.monotonic())
            if not select.select([self.descriptor], [], [], seconds)[0]:
                raise AgentFailed(
                    f"role {self._ctx.role.name!r} got no answer in time", "raise the agent's timeout"
                )
            data = os.read(self.descriptor, 4096)
            if not data:
                raise InputEnded(
                    f"role {self._ctx.role.name!r} got no answer; thread {self._ctx.thread} waits",
                    _way_back(self._ctx),
                )
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        return line.decode("utf-8", "replace").rstrip("\r")


def _way_back(ctx: Context) -> str:
    """Return the command with which the person comes back."""
    from uwf_git.plugin import resolve_agent

    head = ctx.instance.threads.head(ctx.thread)
    if (turn := human_turn_of(ctx.instance, head)) is not None:
        return command_at(ctx.instance, head, turn)
    again = f"in a terminal: uwf thread step {ctx.thread}"
    with suppress(UwfError):  # a call of a code workflow
        if resolve_agent(ctx.config, ctx.history.cast.role(ctx.role.name)).command == HUMAN:
            return again
    return f"{again} --agent {HUMAN}"


def _introduction(ctx: Context, shown: Presented) -> str:
    role, history = ctx.role, ctx.history
    whom = f", for {role.assignee}" if role.assignee else ""
    parts = [
        f"{role.name}{whom}, step {len(history.steps) + 1} of thread {ctx.thread} ({history.workflow.name})"
    ]
    texts = (role.description, role.system_prompt, role.goal, role.procedure, role.output)
    parts += [text.strip() for text in texts if text.strip()]
    return "\n\n".join([*parts, *shown.parts()])


def _shown(text: str) -> str:
    return written_out(text.replace("\t", "    "))


def _listed(problems: Sequence[Any]) -> str:
    return "".join(f"- {problem}\n" for problem in problems)


def _questions(ctx: Context, terminal: Terminal) -> tuple[dict[str, Any], str]:
    root = ctx.schema.payload
    output: dict[str, Any] = {}
    shapes = schema_variants(root)
    if len(shapes) > 1:
        shapes = _narrow(root, terminal, shapes, output)
    for field in shapes[0].fields:
        if field.name not in output:
            value = _ask_field(root, terminal, field)
            if value is not None:
                output[field.name] = value[0]
    return output, _ask_report(terminal)


def _narrow(
    root: Any, terminal: Terminal, shapes: tuple[SchemaVariant, ...], output: dict[str, Any]
) -> tuple[SchemaVariant, ...]:
    for name in dict.fromkeys(["$status", "status", *(field.name for field in shapes[0].fields)]):
        offers = [
            schema_choices(root, field.schema) if (field := shape.field(name)) else None for shape in shapes
        ]
        if all(offers):
            every = list(dict.fromkeys(value for offer in offers for value in offer or ()))
            if len(every) > 1:
                output[name] = _choose(terminal, name, every)
                shapes = tuple(
                    shape
                    for shape, offer in zip(shapes, offers, strict=True)
                    if output[name] in (offer or ())
                )
                break
    if len(shapes) == 1:
        return shapes
    names = [shape.title or ", ".join(field.name for field in shape.fields) for shape in shapes]
    picked = _choose(terminal, "form", [f"{number}. {name}" for number, name in enumerate(names, 1)])
    return (shapes[int(str(picked).split(".")[0]) - 1],)


def _choose(terminal: Terminal, name: str, offered: Sequence[Any], optional: bool = False) -> Any:
    shown = [text_of(value) for value in offered]
    numbers = not any(text.strip().isdigit() for text in shown)  # else one might be taken for the other
    lines = "".join(f"  {f'{number})' if numbers else '-'} {text}\n" for number, text in enumerate(shown, 1))
    places = f"1-{len(offered)}" if numbers else "one of these"
    while True:
        typed = terminal.ask(f"{lines}{name} [{places}{', Enter for none' if optional else ''}]: ").strip()
        if not typed and optional:
            return None
        for number, (value, text) in enumerate(zip(offered, shown, strict=True), 1):
            if typed == text or (numbers and typed == str(number)):
                return value
        pairs = [(value, text.lower()) for value, text in zip(offered, shown, strict=True)]
        same = [value for value, text in pairs if text == typed.lower()]
        begun = [value for value, text in pairs if typed and text.startswith(typed.lower())]
        if len(matches := same or begun) == 1:
            return matches[0]
        terminal.say("Please choose one of these.\n")


def _ask_field(root: Any, terminal: Terminal, field: SchemaField) -> tuple[Any] | None:
    heading = f"{field.name}: {field.description}\n" if field.description else ""
    listed = schema_choices(root, field.schema)
    if listed is not None and len(listed) == 1:
        return (listed[0],)
    if listed is not None:
        terminal.say(heading)
        chosen = _choose(terminal, field.name, listed, optional=not field.required)
        return None if chosen is None and not field.required else (chosen,)
    schema = Schema({**field.schema, **{key: root[key] for key in ("$defs", "definitions") if key in root}})
    kind = describe_schema(root, field.schema)
    need = "" if field.required else ", Enter for none"
    while True:
        if schema_types(field.schema) == ("array",):
            terminal.say(f"{heading}{field.name} ({kind}; one a line, an empty line ends)\n")
            value: Any = [_read(line) for line in _lines(terminal)]
            if not value and not field.required:
                return None
        else:
            terminal.say(heading)
            line = _ask_line(terminal, f"{field.name} ({kind}{need}): ")
            if not line.strip():
                if not field.required:
                    return None
                terminal.say('This is needed; type "" for an empty text.\n')
                continue
            value = _read(line)
        try:
            value = normalise_payload(coerce_value(value, schema))
            problems: Sequence[Any] = schema.problems(value)
        except Invalid as error:
            problems = [error.message]
        if not problems:
            return (value,)
        terminal.say("That cannot be taken:\n" + _listed(problems))


def _ask_line(terminal: Terminal, question: str) -> str:
    line = terminal.ask(question)
    while line.endswith("\\"):
        line = line[:-1] + "\n" + terminal.ask("… ")
    return line


def _read(typed: str) -> Any:
    return read_typed(typed if "\n" in typed else typed.strip())


def _lines(terminal: Terminal) -> list[str]:
    lines: list[str] = []
    while (line := terminal.ask("  - ")).strip():
        lines.append(line)
    return lines


def _ask_report(terminal: Terminal) -> str:
    terminal.say("Your report, if there is more to say; a line with a single dot, or Ctrl-D, ends it.\n")
    lines: list[str] = []
    try:
        while (line := terminal.ask("> ")).strip() != ".":
            lines.append(line)
    except InputEnded:
        terminal.say("\n")
    return "\n".join(lines).strip()


def _edit(ctx: Context, terminal: Terminal, introduction: str) -> Reply:
    import tempfile

    problems: Sequence[str] = ()
    text = _form(ctx)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{ctx.role.name.replace('/', '-')}.md"
        while True:
            note = "".join(f"{_NOTE} - {problem}\n" for problem in problems)
            shown = f"{_NOTE} This cannot be taken yet:\n{note}{text}" if problems else text
            path.write_text(f"{shown}\n{_help(ctx, introduction)}", encoding="utf-8")
            _open_editor(terminal, path)
            edited = _without_notes(path.read_text(encoding="utf-8", errors="replace"))
            if not edited.strip() or edited == _without_notes(text):
                raise Absent(f"the form of role {ctx.role.name!r} was left as it was", _way_back(ctx))
            answer = _without_hints(edited, _form(ctx))
            verdict = judge_answer(Reply(answer), ExpectedOutput(ctx.role, ctx.schema))
            if not verdict.problems:
                return Reply(answer, output=verdict.output)
            problems, text = verdict.problems, edited


def _form(ctx: Context) -> str:
    """Return the block to fill in: only what is needed is a field, and nothing has a value yet."""
    root = ctx.schema.payload
    fields = fields_of(root)
    names = {field.name for field in fields}
    lines = []
    for field in schema_variants(root)[0].fields:
        if field.name not in names and (only := schema_choices(root, field.schema)):
            lines.append(f"{_key(field.name)}: {json.dumps(only[0])}")
    for offered in fields:
        values = " or ".join(map(one_line, offered.choices)) or offered.kind
        lines.append(f"{'' if offered.required else '# '}{_key(offered.name)}:  # {values}")
    return "\n".join(["---", *lines, "---", ""])


def _key(name: str) -> str:
    return name if re.fullmatch(r"[$A-Za-z_][\w-]*", name) else json.dumps(name)


def _help(ctx: Context, introduction: str) -> str:
    from uwf_git.plugin import format_instruction

    text = f"{introduction}\n\n{format_instruction(ctx.schema.payload)}"
    note = f"{_NOTE} Lines that begin with {_NOTE} are left out. Your report goes below the block.\n{_NOTE}\n"
    return note + "".join(f"{_NOTE} {line}".rstrip() + "\n" for line in _shown(text).split("\n"))


def _without_notes(text: str) -> str:
    kept = [line for line in text.splitlines() if not line.startswith(_NOTE)]
    return "\n".join(kept).strip("\n") + "\n"


def _without_hints(text: str, form: str) -> str:
    """Return a form without what it says behind its fields, which would be taken for values."""
    for line in form.splitlines():
        if "  # " in line:
            text = text.replace(f"{line[line.index('  # ') :]}\n", "\n")
    return text


def _open_editor(terminal: Terminal, path: Path) -> None:
    import subprocess

    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    seconds = None if terminal.deadline is None else max(0.0, terminal.deadline - time.monotonic())
    tty = terminal.descriptor
    try:
        argv = [*shlex.split(command), str(path)]
        env = processes.working_in(None, os.environ)
        done = subprocess.run(argv, stdin=tty, stdout=tty, stderr=tty, env=env, timeout=seconds, check=False)
    except (OSError, ValueError) as error:
        raise AgentFailed(f"editor {command!r} does not start: {error}", "set VISUAL or EDITOR") from None
    except subprocess.TimeoutExpired:
        raise AgentFailed("the time ran out in the editor", "raise the agent's timeout") from None
    if done.returncode:
        raise AgentFailed(
            f"editor {command!r} exited with {done.returncode}", "nothing was stored; step again"
        )


agent = create_agent("uwf-human", run, parse_args=parse_args, usage=USAGE)
main = agent.main

if __name__ == "__main__":
    main()
