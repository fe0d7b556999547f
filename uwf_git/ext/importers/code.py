"""The first engine's storage root: code workflows in one file, and their threads as JSON lines.

    workflow.yaml                       workflows: {<name>: {hash, timestamp, history: [{hash, timestamp}]}}
    bundles/<hash>.esm.js, <hash>.yaml  a code workflow, named by the XXH64 of its bytes, and its descriptor
    logs/<hash>/<ULID>.data.jsonl       {name, hash, threadId, parameters, timestamp}, then a line a step:
                                        {role, content, meta, timestamp}
    logs/<hash>/<ULID>.info.jsonl       {tag, content, timestamp}, with the thread's end

No code is run: the descriptor is read from its file. Importing doesn't trust it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from uwf_git.api.compilers import compiler
from uwf_git.base.errors import Invalid, UwfError
from uwf_git.ext.importers.folder import Folder, Source
from uwf_git.ext.importers.intake import ImportedWorkflow, Intake
from uwf_git.ext.importers.json_cas import LATEST
from uwf_git.ext.importers.run import Run
from uwf_git.ext.importers.storage import COMPLETED, KILLED, LARGEST_LOG, OldThread, document, lines
from uwf_git.ext.importers.threads import SourceThread, Threads, Turn
from uwf_git.ext.importers.workflows import Workflows
from uwf_git.format.ids import Hash, ThreadId, is_hash, is_thread_id, name_problem
from uwf_git.format.node import file_id
from uwf_git.format.types import END, JAVASCRIPT
from uwf_git.workflow.code_workflow import MAX_BYTES
from uwf_git.workflow.compile import Compiled

AGENT = "uncaged-workflow"
_CODE, _DESCRIPTOR, _DATA, _INFO = ".esm.js", ".yaml", ".data.jsonl", ".info.jsonl"
_FINISHED, _ABORTED = "generator finished", "aborted"


class _Registered(NamedTuple):
    """A workflow: the current file, and all past ones, oldest first, with Unix milliseconds."""

    current: str
    past: tuple[tuple[int, str], ...]


class OldCode(Source):
    """The first engine's part of a storage root."""

    def __init__(self, root: Folder) -> None:
        super().__init__()
        self.workflows: dict[str, _Registered] = {}
        self.bundles = self._folder(root, "bundles")
        self._logs = self._folder(root, "logs")
        try:
            self._register(document(root, "workflow.yaml"))
        except UwfError as error:
            self._refuse("file", "workflow.yaml", error.message)

    @property
    def is_empty(self) -> bool:
        return self.bundles is None and self._logs is None and not self.workflows and not self.problems

    def _register(self, value: Mapping[str, Any]) -> None:
        workflows = value.get("workflows")
        for name, entry in workflows.items() if isinstance(workflows, dict) else ():
            past = entry.get("history") if isinstance(entry, dict) else None
            found = [_version(each) for each in ([*past, entry] if isinstance(past, list) else [entry])]
            if problem := name_problem(name):
                self._refuse("workflow", name, f"its name {problem}")
            elif found[-1] is None:
                self._refuse("workflow", name, "what is registered for it is not a bundle")
            else:
                known = sorted({each for each in found if each is not None})
                self.workflows[name] = _Registered(found[-1][1], tuple(known))

    def threads(self) -> Iterator[tuple[ThreadId, str, Folder]]:
        """Yield thread ids with their code workflow and folder."""
        for bundle in self._logs.names() if self._logs is not None else ():
            assert self._logs is not None
            try:
                folder = self._logs.folder(bundle)
            except Invalid as error:
                self._refuse("file", f"logs/{bundle}", error.message)
                continue
            for name in folder.names() if folder is not None else ():
                if folder is None or not name.endswith(_DATA):
                    continue
                thread = name.removesuffix(_DATA).upper()
                if not is_thread_id(thread):
                    self._refuse("thread", thread, "its id is not a ULID")
                elif not is_hash(bundle):
                    self._refuse("thread", thread, f"{bundle!r} is not a bundle's hash")
                else:
                    yield ThreadId(thread), bundle, folder


def _version(entry: Any) -> tuple[int, str] | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("hash"), str) or not is_hash(entry["hash"]):
        return None
    return _time(entry.get("timestamp")), entry["hash"]


def _time(value: Any) -> int:
    return int(value) if type(value) in (int, float) and 0 <= value <= LATEST else 0


def take_code(intake: Intake, threads: Threads, code: OldCode) -> list[ImportedWorkflow]:
    """Import code workflows and threads. Returns the registered ones."""
    when = {f"{name} {id_}": time for name, each in code.workflows.items() for time, id_ in each.past}

    def made(source: str) -> tuple[Compiled, int]:
        name, _, bundle = source.rpartition(" ")
        return _compiled(code, name, bundle), when.get(source, 0)

    workflows = Workflows(intake, made)
    for name, registered in sorted(code.workflows.items()):
        try:
            past = [f"{name} {bundle}" for _, bundle in registered.past]
            workflows.take(name, f"{name} {registered.current}", past)
        except UwfError as error:
            intake.refuse("workflow", name, error.message)
    for thread, bundle, folder in sorted(code.threads(), key=lambda each: each[0]):
        ended, when_ended = _end(folder, thread)
        old = OldThread(thread, Hash(bundle), ended, when_ended)
        threads.take(old, partial(_past, workflows, folder, thread, bundle, ended, when_ended))
    return [each._replace(source=each.source.rpartition(" ")[2]) for each in workflows.taken]


def _compiled(code: OldCode, name: str, bundle: str) -> Compiled:
    from uwf_git.format import yaml12

    if code.bundles is None:
        raise Invalid("there is no folder bundles/")
    text = code.bundles.read(bundle + _CODE, MAX_BYTES)
    if (actual := file_id(text)) != bundle:
        raise Invalid(f"bundle {bundle} is damaged: its hash is {actual}")
    described = code.bundles.read(bundle + _DESCRIPTOR, MAX_BYTES)
    document = yaml12.load(described, bundle + _DESCRIPTOR)
    return compiler(JAVASCRIPT).compile_described(text, bundle + _CODE, document, name)


def _past(
    workflows: Workflows, folder: Folder, thread: ThreadId, bundle: str, ended: str | None, when: int
) -> SourceThread:
    name = thread + _DATA
    found, torn = _lines(folder, name)
    start = found[0][1] if found else {}
    parameters = start.get("parameters")
    prompt = parameters.get("prompt") if isinstance(parameters, dict) else None
    workflow = start.get("name")
    if not isinstance(workflow, str) or not isinstance(prompt, str) or start.get("hash") != bundle:
        raise Invalid(f"{name} doesn't begin with a start of a run of {bundle}")
    if problem := name_problem(workflow):
        raise Invalid(f"its workflow's name {problem}")
    options = parameters.get("options") if isinstance(parameters, dict) else None
    rounds = options.get("maxRounds") if isinstance(options, dict) else None
    turns = []
    for number, line in found[1:]:
        role, said, at = line.get("role"), line.get("content"), _time(line.get("timestamp"))
        if not isinstance(role, str) or not isinstance(said, str) or "meta" not in line:
            raise Invalid(f"{name}:{number} is not a step: it has a role, content and meta")
        source = f"{thread}:{number}"
        add = partial(
            Run.add_said, role=role, output=line["meta"], answer=said, agent=AGENT, source=source, when=at
        )
        turns.append(Turn(source, role, add))
    if ended == COMPLETED:
        # The returned value was not recorded, only that it returned.
        add = partial(
            Run.add_said, role=END, output=None, answer="", agent=AGENT, source=f"{thread}:end", when=when
        )
        turns.append(Turn(f"{thread}:end", END, add))
    version = workflows.version(f"{workflow} {bundle}")
    limit = rounds if type(rounds) is int and 0 < rounds < LATEST else None
    return SourceThread(version, prompt, None, limit, _time(start.get("timestamp")), turns, torn)


def _end(folder: Folder, thread: ThreadId) -> tuple[str | None, int]:
    ended: str | None = None
    when = 0
    try:
        for _, line in lines(folder.read(thread + _INFO, LARGEST_LOG)):
            if not isinstance(line, dict):
                continue
            said = line.get("content")
            if isinstance(said, str) and said.endswith((_FINISHED, _ABORTED)):
                ended = COMPLETED if said.endswith(_FINISHED) else KILLED
                when = _time(line.get("timestamp"))
    except UwfError:
        return None, 0
    return ended, when


def _lines(folder: Folder, name: str) -> tuple[list[tuple[int, dict[str, Any]]], str]:
    """Return a file's lines, and a note if the last is torn, as after a kill. Raises NotFound, Invalid for
    other bad lines."""
    found: list[tuple[int, dict[str, Any]]] = []
    data = folder.read(name, LARGEST_LOG)
    last = data.rstrip().count(b"\n") + 1
    for number, value in lines(data):
        if isinstance(value, dict):
            found.append((number, value))
        elif number == last and found:
            return found, f"{name}:{number} is torn, and left out: {value}"
        else:
            raise Invalid(f"{name}:{number}: {value}")
    return found, ""
