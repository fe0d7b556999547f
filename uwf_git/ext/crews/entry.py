"""Resolving a menu choice. Everything it names is found and read first, so either all of it exists or nothing
starts.

A workflow starts a thread; anything else without an immediate answer (a script, a prompt, an unmatched text)
is one turn of the persona.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.ext.crews.crew_node import Crew, CrewWorkflow, Member
from uwf_git.ext.crews.menu import RUN_PROMPT, RUN_SCRIPT, START, TURNS, Choice, Routing, candidates, route
from uwf_git.ext.crews.package import CLASSIC, mounted
from uwf_git.ext.crews.prompt import data_in, data_message, data_problem
from uwf_git.ext.crews.registry import Crews, offered_by
from uwf_git.plugin import (
    PACKAGE_MOUNT,
    PROJECT_MOUNT,
    DataLoadFailed,
    Invalid,
    NotSupportedClassicWorkflow,
    UnknownPromptId,
    UnknownWorkflow,
    UwfError,
    ValidationFailed,
    find_persona,
    nearest,
    one_line,
    system,
)

if TYPE_CHECKING:
    from uwf_git.plugin import History, Instance, Oid, RegisteredVersion

PREVIEW = 64 << 10
"""Bytes of a file that are given along where no limit is stricter."""
LARGEST = 16 << 20
"""Bytes of a file that is read at all."""

_FORMATS = {".json": "json", ".yaml": "yaml", ".yml": "yaml", ".csv": "csv", ".tsv": "csv", ".xml": "xml"}
_CODE = re.compile(r"^\[[^\[\]\s]+\]\s*")
_MEND = "correct it, or name another file"
_READ = os.O_RDONLY | system.O_NOFOLLOW | system.O_NONBLOCK | system.O_NOCTTY | system.O_CLOEXEC


class Run(NamedTuple):
    """Start a workflow with a prompt; `persona` is the default speaker's id. `data` is a file as in a
    StartNode: `path`, `format`, `text` and `size`."""

    workflow: CrewWorkflow
    persona: str
    prompt: str
    data: Mapping[str, Any] | None = None


class Turn(NamedTuple):
    """A message to a persona. `reads_only`: nothing may be changed; otherwise the message is exactly a menu
    item's. `before` is the user's own text, sent first."""

    persona: str
    message: str
    reads_only: bool = False
    before: str = ""


class Entry:
    """A persona that gets inputs. `project` is the working folder."""

    def __init__(self, instance: Instance, address: str, project: Path, thread: Oid | None = None) -> None:
        """`address` is CREW or CREW/PERSONA, by default the first. The crew is the newest version, or that of
        the commit `thread`. Raises NotFound with the nearest name, and as `Crews.behind`."""
        self._instance = instance
        self._project = project
        name, _, persona = address.partition("/")
        self.crews = Crews(instance.store)
        self.version: RegisteredVersion = (
            self.crews.current(name) if thread is None else self.crews.behind(name, thread)
        )
        self.crew: Crew = self.crews.crew(self.version.hash)
        members = {member.persona.id: member for member in self.crew.members}
        who = (
            find_persona(name, (member.persona for member in self.crew.members), persona) if persona else None
        )
        self.member: Member = members[who.id] if who else self.crew.members[0]

    @property
    def outdated(self) -> str:
        """A note if the crew isn't the registered one, else ""."""
        name = self.crew.name
        if name not in self.crews.names():
            return f"crew {name!r} isn't registered here"
        is_newest = self.crews.current(name).commit == self.version.commit
        return "" if is_newest else f"crew {name!r} has another version by now"

    def route(self, text: str, offered: tuple[Choice, ...] = ()) -> Routing:
        """Return an input's meaning; `offered` are the candidates of a ClarifyChoice that it answers."""
        return route(self.member, self.crew.workflows, text, offered=offered)

    def resolve(self, routed: Routing, task: str = "") -> Run | Turn | None:
        """Return what to do, None if neither a run nor a turn. `task` is the user's text. Raises
        NotSupportedClassicWorkflow, UnknownWorkflow, UnknownPromptId, DataLoadFailed, ValidationFailed."""
        choice = routed.choice
        if routed.kind == START:
            assert choice is not None
            return self._run(choice, task)
        if routed.kind not in TURNS:
            return None
        words = routed.said if choice is None else self._describe(choice)
        if choice is not None and choice.validate:
            self._check_whole(choice.validate)
        data = self._data(choice) if choice is not None else None
        persona, task = self.member.persona.id, task.strip()
        if choice is None:
            return Turn(persona, "\n\n".join(filter(None, (words, task))), reads_only=True)
        message = "\n\n".join(filter(None, (words, data_message(data) if data else "")))
        return Turn(persona, message, before=task)

    def says(self, message: str) -> bool:
        """Whether a message is exactly a menu item's."""
        return any(
            self._is_said(choice, message.strip()) for choice in candidates(self.member, self.crew.workflows)
        )

    def _is_said(self, choice: Choice, message: str) -> bool:
        if choice.kind not in TURNS:
            return False
        try:
            words = self._instance.redactor.text(self._describe(choice))[0].strip()
            if not choice.does.data:
                return message == words
            path = mounted(choice.does.data)
        except UwfError:  # its target is missing, so it cannot have been chosen
            return False
        before = f"{words}\n\n"
        data = data_in(message.removeprefix(before)) if message.startswith(before) else None
        return data is not None and data["path"] == path and data_problem(data, self._package.get) is None

    def _run(self, choice: Choice, task: str) -> Run:
        does = choice.does
        offered = offered_by(self.crew, does.workflow or does.exec or choice.validate)
        if choice.validate:
            self._check_whole(choice.validate)
        prompt = task.strip() or self._said(choice)
        return Run(offered, self.member.persona.id, prompt, self._data(choice))

    def _describe(self, choice: Choice) -> str:
        does = choice.does
        if choice.kind == RUN_PROMPT:
            name, prompts = does.action.removeprefix("#"), self.member.prompts
            if name not in prompts:
                persona = self.member.persona.id
                raise UnknownPromptId(
                    f"persona {persona!r} of crew {self.crew.name!r} has no prompt {one_line(name, 80)!r}",
                    nearest(name, prompts),
                )
            return prompts[name].strip()
        if choice.kind == RUN_SCRIPT:
            if does.exec.casefold().endswith(CLASSIC):
                raise NotSupportedClassicWorkflow(one_line(does.exec, 80))
            path, data = self._read(does.exec)
            return f"Carry out {path}:\n\n{_text(path, data).strip()}"
        return does.action.strip() or self._said(choice)

    def _said(self, choice: Choice) -> str:
        description = self.member.menu[choice.place].description.strip()
        return _CODE.sub("", description, count=1) or description or choice.label

    def _check_whole(self, name: str) -> None:
        """Raise ValidationFailed with what a workflow lacks."""
        try:
            crew_workflow = offered_by(self.crew, name)
        except (UnknownWorkflow, NotSupportedClassicWorkflow) as error:
            raise ValidationFailed(error.message, error.hint) from None
        workflow = self.crews.workflows(self.crew)[crew_workflow.workflow]
        origin = workflow.crew
        nodes = [role.node.file for role in workflow.roles.values() if role.node is not None]
        needed = [crew_workflow.entry, origin.graph if origin is not None else "", *nodes]
        missing = [path for path in dict.fromkeys(needed) if path and path not in self._package]
        if missing:
            raise ValidationFailed(
                f"workflow {self.crew.name}/{crew_workflow.id} lacks {', '.join(map(one_line, missing[:5]))}",
                f"import the crew again: uwf crew import {self.crew.name}.bmad",
            )

    # Files

    @cached_property
    def _package(self) -> Mapping[str, bytes]:
        from uwf_git.plugin import Oid

        return self.crews.package(Oid(hex=self.version.commit)).files

    @cached_property
    def _most(self) -> int:
        """Return the maximum size of a data file. Raises DataLoadFailed if none may be read."""
        from uwf_git.plugin import SPEAKER, parse_policy

        persona, _ = parse_policy(self.member.persona.tools, SPEAKER)
        policy = self._instance.config_at(Path.cwd()).policy(None, persona)
        if not policy.permits("read_file"):
            raise DataLoadFailed(
                f"persona {self.member.persona.id!r} may read no files",
                "its tools, or tools in config.yaml, forbid read_file",
            )
        return PREVIEW if policy.max_read is None else min(PREVIEW, policy.max_read)

    def _data(self, choice: Choice) -> Mapping[str, Any] | None:
        if not choice.does.data:
            return None
        most = self._most
        path, data = self._read(choice.does.data)
        kind = _FORMATS.get(Path(path).suffix.casefold(), "text")
        text = _text(path, data)
        _check_form(path, kind, text)
        # A secret cut by the limit would leave an unrecognisable part.
        clean = self._instance.redactor.text(text)[0].encode()
        shown = clean[:most].decode("utf-8", "ignore")
        return {"path": path, "format": kind, "text": shown, "size": len(text.encode())}

    def _read(self, name: str) -> tuple[str, bytes]:
        try:
            path = mounted(name)
        except Invalid as error:
            raise DataLoadFailed(error.message, error.hint) from None
        mount, _, rest = path.partition("/")
        if mount == PACKAGE_MOUNT:
            if rest not in self._package:
                raise DataLoadFailed(f"there is no file {path}", nearest(rest, self._package))
            return path, self._package[rest]
        if mount != PROJECT_MOUNT:
            raise DataLoadFailed(
                f"{path} is of a run, and none has begun",
                f"name a file of {PROJECT_MOUNT} or {PACKAGE_MOUNT}",
            )
        return path, self._of_project(path, rest)

    def _of_project(self, shown: str, rest: str) -> bytes:
        try:
            base = self._project.resolve(strict=True)
            real = (base / rest).resolve(strict=True)
            own = (self._instance.location.root, self._instance.location.git_dir)
            if not real.is_relative_to(base):
                raise DataLoadFailed(
                    f"{shown} is a link that leads out of {PROJECT_MOUNT}", "put a copy of the file there"
                )
            if any(real.is_relative_to(path.resolve()) for path in own):
                raise DataLoadFailed(f"{shown} is uwf's own", "name another file")
            with open(system.open_file(real, _READ), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise DataLoadFailed(f"{shown} is not a regular file", "name a file")
                data = file.read(LARGEST + 1)
        except FileNotFoundError:
            raise DataLoadFailed(f"there is no file {shown}", f"{PROJECT_MOUNT} is {self._project}") from None
        except (OSError, ValueError, RuntimeError) as error:  # a NUL in the path, links in a circle
            reason = getattr(error, "strerror", None) or str(error)
            raise DataLoadFailed(f"{shown} cannot be read: {one_line(reason, 80)}", "check it") from None
        if len(data) > LARGEST:
            raise DataLoadFailed(f"{shown} is larger than {LARGEST >> 20} MiB", "name a smaller file")
        return data


def is_of_menu(instance: Instance, history: History, message: str, project: Path) -> bool:
    """Return whether a conversation's message is exactly a menu item's, in its version of the crew."""
    crew, persona = history.workflow.crew, history.start.persona
    if crew is None:
        return False
    try:
        at = instance.threads.head(history.thread).commit
        return Entry(instance, f"{crew.name}/{persona}", project, at).says(message)
    except UwfError:  # unknown items get no further rights
        return False


def _text(path: str, data: bytes) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DataLoadFailed(f"{path} is not UTF-8", "convert it: iconv -t utf-8") from None
    if "\0" in text:
        raise DataLoadFailed(f"{path} is not text", "name a text file")
    return text


def _check_form(path: str, kind: str, text: str) -> None:
    """Raise DataLoadFailed if a text isn't in its file name's format."""
    try:
        if kind == "json":
            import json

            json.loads(text)
        elif kind == "yaml":
            from uwf_git.plugin import MAX_DOCUMENT_BYTES, load_yaml

            # Larger files take long to read, and only their beginning is used.
            if len(text) <= MAX_DOCUMENT_BYTES:
                load_yaml(text, path)
        elif kind == "csv":
            _check_table(text)
        elif kind == "xml":
            _check_xml(text)
    except Invalid as error:
        raise DataLoadFailed(error.message, error.hint or _MEND) from None
    except (ValueError, RecursionError) as error:
        raise DataLoadFailed(f"{path} is not a {kind}: {one_line(str(error), 120)}", _MEND) from None


def _check_table(text: str) -> None:
    import csv

    try:
        for _ in csv.reader(text.splitlines(keepends=True), strict=True):
            pass
    except csv.Error as error:
        raise ValueError(str(error)) from None


def _check_xml(text: str) -> None:
    from xml.parsers.expat import ExpatError, ParserCreate

    def refuse(*_: object) -> None:
        raise ValueError("it declares entities")

    parser = ParserCreate()
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(text.encode(), True)
    except ExpatError as error:
        raise ValueError(str(error)) from None
