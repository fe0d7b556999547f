"""What an argument means: a text given as it is, in a file or on standard input; a workflow by name, hash or file; a
thread and a step by the beginning of an id.

A workflow is looked for in this order, and the first that fits is taken:

    1  a registered name, or CREW/ID for a workflow of a registered crew, and with ~2 after it the version two before
       the newest
    2  the hash of a Workflow node, or the id of a bundle's file, or the unique beginning of one (four characters
       and more)
    3  a file
    4  `.workflows/NAME.yaml` (or .yml, or a bundle's NAME.esm.js) in the current folder and those above it, up to the
       edge of the repository; outside a repository only in the current folder
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_cli import terminal
from uwf_git.base.errors import (
    Invalid,
    NotFound,
    NotSupportedClassicWorkflow,
    UnknownWorkflow,
    Usage,
    UwfError,
)
from uwf_git.base.text import counted, nearest, nearest_file
from uwf_git.format.ids import Hash, complete
from uwf_git.format.kinds import Workflow
from uwf_git.format.node import parse_json
from uwf_git.format.types import CODE, versions

if TYPE_CHECKING:
    from uwf_cli.invocation import Invocation
    from uwf_git.format.findings import Finding
    from uwf_git.git.repository import Oid
    from uwf_git.store.opened import Instance
    from uwf_git.workflow.compile import Compiled

STDIN = "-"
LARGEST = 32 << 20
_stdin: ContextVar[str | None] = ContextVar("stdin", default=None)


@contextmanager
def stdin(text: str) -> Iterator[None]:
    """Take a text for standard input, in this thread or task."""
    before = _stdin.set(text)
    try:
        yield
    finally:
        _stdin.reset(before)


def read_stdin(what: str) -> str:
    """All of standard input. Raises Usage on a terminal, Invalid for what is no UTF-8."""
    if (text := _stdin.get()) is not None:
        return text
    if sys.stdin is None:
        raise Usage(f"the {what} is read from standard input, which is closed", "pipe it in")
    if terminal.is_terminal(sys.stdin):
        raise Usage(f"the {what} is read from standard input, which is a terminal", "pipe it in")
    return _text(sys.stdin.buffer.read(LARGEST + 1), what)


def read_file(name: str, what: str) -> str:
    """A file's text; `-` is standard input. Raises NotFound, Invalid."""
    if name == STDIN:
        return read_stdin(what)
    from uwf_git.format.document import open_file, unreadable

    path = Path(name)
    try:
        with open_file(path) as file:
            return _text(file.read(LARGEST + 1), f"{what} in {name}", "give a part of it")
    except FileNotFoundError:
        try:
            siblings = [entry.name for entry in path.parent.iterdir()]
        except OSError:
            siblings = []
        hint = nearest_file(path.name, siblings) or "give the path of a file, or - for standard input"
        raise NotFound(f"no file {name}", hint) from None
    except IsADirectoryError:
        raise Invalid(f"{name} is a folder, not a file", "") from None
    except OSError as error:
        raise unreadable(name, error) from None


def json_value(text: str) -> Any:
    """The JSON value of an argument; `-` reads it from standard input. Raises Invalid."""
    return parse_json(read_stdin("JSON") if text == STDIN else text)


def limits(given: Mapping[str, str | None]) -> dict[str, float]:
    """The budget that the options --max-steps, --max-tokens, --max-cost and --max-time give, by the names of
    click. Raises Usage."""
    from uwf_git.engine.budget import OPTIONS, parse_option

    names = {key: option.lstrip("-").replace("-", "_") for key, option in OPTIONS.items()}
    return {key: parse_option(key, text) for key, name in names.items() if (text := given[name]) is not None}


def moment(text: str | None, option: str, add: int = 0) -> float | None:
    """Unix seconds of a day's beginning in UTC, `add` seconds later, or of so long ago. Raises Usage."""
    import re
    import time

    from uwf_git.format.amounts import parse_duration

    if text is None:
        return None
    if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
        import calendar

        try:
            return calendar.timegm(time.strptime(text, "%Y-%m-%d")) + add
        except ValueError:
            pass
    elif (seconds := parse_duration(text)) is not None:
        return time.time() - seconds
    raise Usage(f"{option} {text!r} is neither a day nor a duration", "as in 2026-01-31, or 30d")


def _text(
    data: bytes, what: str, hint: str = "give a part of it, or the name of a file that it is in"
) -> str:
    if len(data) > LARGEST:
        raise Invalid(f"the {what} is larger than {LARGEST >> 20} MiB", hint)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Invalid(f"the {what} is not UTF-8", "convert it: iconv -t utf-8") from None


FOLDER = ".workflows"
SUFFIXES = (".yaml", ".yml", ".esm.js", ".mjs")


class Found(NamedTuple):
    """A workflow that an argument led to: registered, in the store, or in a file. `schemas` are the
    payloads of its roles' schemas; `commit` is a version commit, None for what is only in a file. Of a crew's workflow,
    `speaker` is the id of the persona who speaks where neither it nor its thread names one."""

    hash: Hash
    workflow: Workflow
    payload: Mapping[str, Any]
    schemas: Mapping[Hash, Any]
    commit: str | None
    compiled: Compiled | None
    speaker: str = ""


def find_workflow(invocation: Invocation, text: str) -> Found:
    """The workflow that an argument names. Raises NotFound with the nearest name, Usage for an
    ambiguous hash, InvalidWorkflow for a file with errors."""
    if invocation.location.git_dir.exists():
        found = stored_workflow(invocation.instance, text)
        if found is not None:
            return found
    path = workflow_file(invocation, text)
    if path is not None:
        return _in_file(invocation, path)
    known = [*_registered(invocation), *file_names(invocation.location.root)]
    listed = "uwf crew list" if "/" in text else "uwf workflow list"
    hint = nearest(text, known) or f"see: {listed}, or give a file"
    raise NotFound(f"no workflow {text!r}", hint)


def compile_file(invocation: Invocation, file: Path, name: str | None = None) -> Compiled:
    """A workflow's file, compiled and rehearsed, where it isn't code; its warnings are told. `name` is what a bundle is
    called that doesn't say it. Raises NotFound, Usage, InvalidWorkflow."""
    from uwf_git.workflow.code_file import language_of
    from uwf_git.workflow.compile import compile_source, foresee
    from uwf_git.workflow.source import read_source

    if language_of(file) is not None:
        compiled = _compile_code(invocation, file, name)
    elif name is not None:
        raise Usage(f"{file} holds the name of its workflow", "leave out --name")
    else:
        compiled = compile_source(read_source(file))
        compiled = compiled._replace(warnings=foresee(compiled))
    for finding in compiled.warnings:
        hint = f" — {finding.hint}" if finding.hint else ""
        invocation.note(f"{file}:{finding.line}:{finding.column}: warning: {finding.message}{hint}")
    return compiled


def check_file(invocation: Invocation, file: Path) -> Sequence[Finding]:
    """All findings about a workflow's file, in the order of its lines. Raises NotFound, Invalid."""
    from uwf_git.workflow.code_file import language_of
    from uwf_git.workflow.compile import InvalidWorkflow, validate

    if language_of(file) is None:
        return validate(file)
    try:
        return _compile_code(invocation, file).warnings
    except InvalidWorkflow as error:
        return error.findings


def _compile_code(invocation: Invocation, file: Path, name: str | None = None) -> Compiled:
    from uwf_git.api.compilers import compiler
    from uwf_git.config.read import load_config
    from uwf_git.workflow.code_file import language_of

    language = language_of(file)
    assert language is not None
    return compiler(language).compile_file(file, load_config(invocation.location.root), name)


def warnings_of(compiled: Compiled) -> dict[str, Any]:
    """The warnings about a workflow as a part of a result: nothing where there are none."""
    return {"warnings": [each._asdict() for each in compiled.warnings]} if compiled.warnings else {}


def workflow_file(invocation: Invocation, text: str) -> Path | None:
    """The file that an argument names: one of that path, else one of the project's `.workflows` or of the folders that
    `workflowPaths` of config.yaml names."""
    from uwf_git.workflow.code_file import language_of

    path = Path(text)
    is_named = path.suffix.lower() in SUFFIXES or language_of(path) is not None
    if is_named or path.is_file():
        return path
    for folder in _folders(invocation.location.root):
        for suffix in SUFFIXES:
            candidate = folder / (text + suffix)
            if candidate.is_file():
                return candidate
    return None


def version_of(instance: Instance, found: Found) -> Oid:
    """The commit that a thread of a workflow begins on; made without a ref for what is in a file."""
    if found.compiled is not None:
        return instance.registry.commit_unregistered(found.compiled)
    from uwf_git.git.repository import Oid

    assert found.commit is not None
    return Oid(hex=found.commit)


def stored_workflow(instance: Instance, text: str) -> Found | None:
    """The registered or stored workflow that a text names; None where it names none. Raises Usage for an ambiguous
    hash, and NotFound for a version that there isn't."""
    registry = instance.registry
    name, tilde, back = text.rpartition("~")
    names = registry.names()
    if text in names or (tilde and back.isdecimal() and name in names):
        version = registry.named(text)
        return at_version(instance, version.hash, version.commit)
    if "/" in text:
        return _of_package(instance, text)
    prefix = text.strip().upper()
    if not 4 <= len(prefix) <= 13 or not prefix.isalnum():
        return None
    instance.store.sync()
    try:
        index = instance.store.index
        known = [each for type_hash in versions("workflow") for each in index.hashes_of_type(type_hash)]
        bundles = _bundles(instance)
        found = complete(prefix, [*known, *bundles], "workflow")
        node, *others = bundles.get(found, [Hash(found)])
        if others:
            raise Usage(
                f"{found} is the bundle of {counted(len(others) + 1, 'workflow')}", "name one, or give a hash"
            )
    except NotFound:
        return None
    found_there = at_version(instance, node, str(registry.commit_for(node)))
    return found_there._replace(speaker=_first_speaker(instance, found_there.workflow))


def _of_package(instance: Instance, text: str) -> Found | None:
    """The workflow of a registered package, such as a crew; None if there is no such package, or a file of that path in
    its place."""
    from uwf_git.store.definitions import package_at

    packages = package_at(instance.store, text)
    if packages is None:
        return None
    try:
        offer = packages.offer(text)
    except (UnknownWorkflow, NotSupportedClassicWorkflow):
        if Path(text).is_file():
            return None
        raise
    found = at_version(instance, offer.workflow, str(packages.begin(offer)))
    return found._replace(speaker=offer.speakers[0])


def _first_speaker(instance: Instance, workflow: Workflow) -> str:
    """Who speaks first in the package that a workflow is of; if the package isn't here or is another by now, the
    persona whose id comes first."""
    if workflow.crew is None:
        return ""
    from uwf_git.store.definitions import package_at

    packages = package_at(instance.store, workflow.crew.name)
    here = packages.speakers(workflow.crew.name) if packages is not None else iter(())
    return next((speaker for speaker, _ in here if speaker in workflow.personas), min(workflow.personas))


def _bundles(instance: Instance) -> dict[str, list[Hash]]:
    """The nodes of each bundle by its file's id: several where one file was put under several names."""
    found: dict[str, list[Hash]] = {}
    for node in instance.store.index.hashes_of_type(CODE):
        found.setdefault(instance.store.get(node).payload["file"]["id"], []).append(node)
    return found


def at_version(instance: Instance, node: Hash, commit: str) -> Found:
    """The workflow of a node that a version commit has."""
    workflow = instance.registry.workflow(node)
    payload = instance.store.get(node).payload
    names = dict.fromkeys(role.schema for role in workflow.roles.values())
    schemas = {name: instance.store.get(name).payload for name in names}
    return Found(node, workflow, payload, schemas, commit, None)


def _in_file(invocation: Invocation, path: Path) -> Found:
    from uwf_git.workflow.code_file import language_of
    from uwf_git.workflow.compile import compile_source
    from uwf_git.workflow.source import read_source

    is_code = language_of(path) is not None
    compiled = _compile_code(invocation, path) if is_code else compile_source(read_source(path))
    return Found(compiled.hash, compiled.workflow, compiled.payload, compiled.schemas, None, compiled)


def _registered(invocation: Invocation) -> list[str]:
    return invocation.instance.registry.names() if invocation.location.git_dir.exists() else []


def _project_folders() -> Iterator[Path]:
    """The `.workflows` folders a name is looked for in, nearest first. Outside a repository the folders
    above may be anybody's, such as /tmp."""
    from uwf_git.store.location import searched_folders

    try:
        folders = list(searched_folders(Path.cwd()))
    except FileNotFoundError:  # the working folder is gone, and there is no project
        return
    edge = next((number for number, folder in enumerate(folders) if (folder / ".git").exists()), 0)
    for folder in folders[: edge + 1]:
        if (folder / FOLDER).is_dir():
            yield folder / FOLDER


def _folders(root: Path) -> Iterator[Path]:
    """The folders a workflow's name is looked for in: the project's, then those of config.yaml below a storage root."""
    from uwf_git.config.read import load_config

    yield from _project_folders()
    for folder in load_config(root).workflow_paths:
        if folder.is_dir():
            yield folder


def file_names(root: Path) -> list[str]:
    """The names of the workflow files in the project's `.workflows` and the folders of config.yaml below a storage
    root."""
    from uwf_git.workflow.code_file import name_of

    return [name_of(path) for path in _files_in(_folders(root))]


def project_roles() -> dict[str, set[str]]:
    """The roles of the workflows in the project's `.workflows`, by the names in the files. What can't be read is
    left out."""
    from uwf_git.workflow.check import examine
    from uwf_git.workflow.code_file import language_of
    from uwf_git.workflow.source import read_source

    known: dict[str, set[str]] = {}
    for path in _files_in(_project_folders()):
        if language_of(path) is not None:  # only its code knows, and nothing is run for that
            continue
        with suppress(UwfError):
            draft, _ = examine(read_source(path))
            known.setdefault(draft.name, set()).update(draft.declared)
    return known


def _files_in(folders: Iterable[Path]) -> list[Path]:
    return [path for folder in folders for path in folder.iterdir() if path.name.endswith(SUFFIXES)]


def find_version(invocation: Invocation, text: str) -> Found:
    """The workflow that an argument names: NAME@VERSION, where VERSION begins a hash or a commit of the name's history,
    or what every other command takes. Raises NotFound, Usage."""
    name, at, version = text.rpartition("@")
    registry = invocation.instance.registry
    if not at or name not in registry.names() or len(version) < 4:
        return find_workflow(invocation, text)
    found = {
        past.version.hash: past.version
        for past in registry.history(name)
        if past.version.hash.startswith(version.upper()) or past.version.commit.startswith(version.lower())
    }
    if not found:
        raise NotFound(f"workflow {name!r} has no version {version}", f"see: uwf workflow history {name}")
    if len(found) > 1:
        raise Usage(f"{text} is {counted(len(found), 'version')}", "give more characters")
    stored = stored_workflow(invocation.instance, next(iter(found)))
    assert stored is not None
    return stored
