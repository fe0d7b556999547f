"""Sources of cases: threads, steps, and files of prompts.

    suite: bugs                      default: the file's name
    workflow: solve-issue            default for cases
    judges: [tests, exact:approved]  likewise limits and tags
    cases:
      - name: csv
        prompt: The CSV export does not quote commas.
        fixture: repositories/csv    a folder beside the file, or files: {PATH: TEXT}
        expected: {approved: true}

A JSON Lines file has one case per line.
"""

from __future__ import annotations

import codecs
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from uwf_git.ext.evaluation.fixtures import of_texts, store_folder
from uwf_git.ext.evaluation.judges import parse_mapping
from uwf_git.ext.evaluation.records import UNKNOWN, Case, Judge, identified
from uwf_git.ext.evaluation.suite import Suite
from uwf_git.plugin import (
    END,
    FORK,
    HUMAN,
    JOIN,
    USER,
    CommitRow,
    Document,
    Hash,
    Head,
    Instance,
    Invalid,
    Oid,
    Project,
    Revision,
    Usage,
    UwfError,
    ValuePath,
    ancestry,
    clones_of,
    code_left,
    layout,
    name_problem,
    nearest,
    one_line,
    parse_budget,
    parse_json,
    read_bytes,
    title_of,
    yaml12,
)

LINES = (".jsonl", ".ndjson")
_TOP = ("suite", "workflow", "judges", "limits", "tags", "cases")
_FIELDS = ("name", "prompt", "fixture", "files", "workflow", "expected", "judges", "limits", "tags")
_LONGEST_NAME = 40
_OF_ITS_LINE = re.compile(r": line 1 column (\d+) \(char \d+\)")


class CaseDraft(NamedTuple):
    """A case to add, and the commits it depends on."""

    case: Case
    commits: tuple[Oid, ...]


class File(NamedTuple):
    """A file's suite, "" if unnamed, and its cases with workflow names."""

    suite: str
    cases: tuple[tuple[Case, str], ...]


# Of threads


def of_thread(instance: Instance, head: Head) -> CaseDraft:
    """Return a thread's case: its prompt and result."""
    row = head.row
    start = row.start or row.node
    prompt = instance.store.start(start).prompt
    step = row.node if row.kind == "step" else None
    return CaseDraft(Case(UNKNOWN, named_after(prompt), start=start, step=step), (head.commit,))


def of_step(instance: Instance, row: CommitRow, head: Head) -> CaseDraft:
    """Return the case of a role's step in a thread. Raises Invalid for other steps."""
    if row.role in (FORK, JOIN):
        beside = _step_beside(instance, row, head)
        raise Invalid(
            f"step {row.number} of thread {head.thread} is {row.role}, which the engine makes: there is no role to try",
            f"name a step of a role, such as {head.thread}@{beside}" if beside else "add the whole thread",
        )
    if not _is_of_role(row) or row.start is None:
        by_person = row.role == USER or row.agent == HUMAN
        what = "a human's" if by_person else "no role's"
        raise Invalid(f"step {row.node} is {what}, so it cannot be done again", "name a step of a role")
    prompt = instance.store.start(row.start).prompt
    name = f"{named_after(prompt)}-{layout.slug(row.role or '')}-{row.number}"
    case = Case(UNKNOWN, name, start=row.start, step=row.node, role=row.role)
    return CaseDraft(case, (Oid(raw=row.oid),))


def _is_of_role(row: CommitRow) -> bool:
    return row.kind == "step" and row.role not in (None, END, USER, FORK, JOIN) and row.agent != HUMAN


def _step_beside(instance: Instance, row: CommitRow, head: Head) -> int | None:
    """Return the number of the role's step next to a fork or join: the one before a fork, the one after a join."""
    numbers = [commit_row.number for commit_row in steps_of(instance, head) if _is_of_role(commit_row)]
    before = [number for number in numbers if number < row.number][-1:]
    after = [number for number in numbers if number > row.number][:1]
    steps = after + before if row.role == JOIN else before + after
    return steps[0] if steps else None


def steps_of(instance: Instance, head: Head) -> list[CommitRow]:
    rows = []
    for row in ancestry(instance.store, head.commit):
        if row.kind != "step":
            break
        rows.append(row)
    return rows[::-1]


def named_after(prompt: str) -> str:
    """Return a case's name from its prompt's first words."""
    name = ""
    for word in re.findall(r"\w+", title_of(prompt).lower()):
        if len(name) + len(word) > _LONGEST_NAME:
            break
        name = f"{name}-{word}" if name else word
    return name if name and name_problem(name) is None else "case"


# Into a suite


def fitted(suite: Suite | None, drafted: Sequence[CaseDraft], is_named: bool) -> list[CaseDraft]:
    """Return the cases with final names: an explicit existing name, or the same thread and step, replaces a
    case; otherwise names are numbered. Existing cases are dropped."""
    taken = {suite.named[case.hash]: case for case in suite.cases} if suite else {}
    drafts: list[CaseDraft] = []
    for draft in drafted:
        case = draft.case
        number, name = 1, case.name
        while (other := taken.get(name)) is not None and not is_named and not _is_of_the_same(case, other):
            number += 1
            name = f"{case.name}-{number}"
        case = identified(case._replace(name=name))
        if other is not None and other._replace(replaces=()) == identified(case)._replace(
            hash=other.hash, replaces=()
        ):
            continue
        replaced = (other.hash,) if other is not None else ()
        if not replaced and suite is not None and case.hash in suite.every:  # it was taken out
            replaced = (case.hash,)
        case = identified(case._replace(replaces=replaced))
        taken[name] = case
        drafts.append(draft._replace(case=case))
    return drafts


def _is_of_the_same(one: Case, other: Case) -> bool:
    return one.start is not None and (one.start, one.step, one.role) == (other.start, other.step, other.role)


# Of files


def read_file(instance: Instance, path: Path) -> File:
    """Parse a file of cases and store its fixtures. Raises NotFound, Invalid with the line."""
    if path.suffix.lower() in LINES:
        rows = list(_lines(path))
        if not rows:
            raise Invalid(f"{path} has no cases", '{"name": …, "prompt": …}, a case a line')
        top: dict[str, Any] = {}
    else:
        document = yaml12.read(path)
        data = document.data
        top = data if isinstance(data, dict) else {"cases": data}
        _known(top, _TOP, partial(_line_of, document, ()))
        listed = top.get("cases")
        if not isinstance(listed, list) or not listed:
            raise Invalid(f"{path} has no list of cases", "cases: [{name: …, prompt: …}]")
        prefix = ("cases",) if isinstance(data, dict) else ()
        rows = []
        for place, item in enumerate(listed):
            mark = document.mark((*prefix, place))
            if isinstance(item, dict):
                _known(item, _FIELDS, partial(_line_of, document, (*prefix, place)))
            rows.append((item, f"{path}:{mark.line}"))
    suite = top.get("suite", "")
    if not isinstance(suite, str):
        raise Invalid(f"{path}: suite is not a name", "suite: bugs")
    cases = tuple(_case(instance, path.parent, top, value, where) for value, where in rows)
    names = [case.name for case, _ in cases]
    for name in names:
        if names.count(name) > 1:
            raise Invalid(
                f"{path} has two cases called {one_line(name, 60)!r}", "give each a name of its own"
            )
    return File(suite, cases)


def _line_of(document: Document, path: ValuePath, key: str) -> str:
    return f"{document.name}:{document.key_mark((*path, key)).line}"


def _lines(path: Path) -> Iterator[tuple[Any, str]]:
    # Only \n ends a line: a text may hold what else is taken for an end of one, such as U+2028.
    for number, line in enumerate(read_bytes(path).removeprefix(codecs.BOM_UTF8).split(b"\n"), 1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            yield parse_json(line.decode("utf-8")), where
        except UnicodeDecodeError as error:
            raise Invalid(f"{where}: byte {error.start + 1} is not UTF-8", "save the file as UTF-8") from None
        except UwfError as error:
            message = _OF_ITS_LINE.sub(r" at column \1", error.message)
            raise Invalid(f"{where}: {message}", error.hint) from None


def _case(
    instance: Instance, folder: Path, top: Mapping[str, Any], value: Any, where: str
) -> tuple[Case, str]:
    if not isinstance(value, dict):
        raise Invalid(f"{where}: a case is a mapping", "{name: …, prompt: …}")
    _known(value, _FIELDS, lambda key: where)
    prompt = value.get("prompt")
    if not isinstance(prompt, str) or not prompt.strip():
        raise Invalid(f"{where}: the case has no prompt", "prompt: the task, as text")
    name = value.get("name", named_after(prompt))
    if not isinstance(name, str) or (problem := name_problem(name)):
        raise Invalid(
            f"{where}: the name {one_line(str(name), 60)!r} {problem or 'is not text'}", "name: csv-export"
        )
    workflow = value.get("workflow", top.get("workflow", ""))
    tags = value.get("tags", top.get("tags", []))
    if (
        not isinstance(workflow, str)
        or not isinstance(tags, list)
        or not all(isinstance(t, str) for t in tags)
    ):
        raise Invalid(f"{where}: workflow is a name, and tags are a list of texts", "tags: [slow]")
    limits, problems = parse_budget(value.get("limits", top.get("limits")))
    for _, message, hint in problems:
        raise Invalid(f"{where}: {message}", hint)
    try:
        judges = tuple(_judges(value.get("judges", top.get("judges", [])), folder))
        fixture = _fixture(instance, folder, value, where)
    except UwfError as error:
        raise Invalid(f"{where}: {error.message}", error.hint) from None
    case = Case(
        UNKNOWN,
        name,
        prompt,
        fixture=fixture,
        expected=value.get("expected"),
        judges=judges,
        limits=limits,
        tags=tuple(tags),
    )
    return case, workflow


def _known(value: Mapping[str, Any], known: Sequence[str], where: Callable[[str], str]) -> None:
    for key in value:
        if key not in known and not str(key).startswith("x-"):
            hint = nearest(str(key), known) or "known: " + ", ".join(known)
            raise Invalid(f"{where(key)}: there is no {one_line(str(key), 40)!r} here", hint)


def _judges(value: Any, folder: Path) -> Iterator[Judge]:
    if not isinstance(value, list):
        raise Usage("judges are a list", "judges: [tests, exact]")
    for item in value:
        yield parse_mapping(item, folder)


def _fixture(instance: Instance, folder: Path, value: Mapping[str, Any], where: str) -> str | None:
    fixture, files = value.get("fixture"), value.get("files")
    if fixture is not None and files is not None:
        raise Usage("fixture and files exclude each other", "give one of them")
    if isinstance(fixture, str) and fixture.strip():
        path = folder / Path(fixture).expanduser()
        if not path.resolve().is_relative_to(folder.resolve()):  # the file may come from someone else
            instance.warn(f"{where}: took in {one_line(str(path))}, which isn't below the file's folder")
        return store_folder(instance, path)
    if isinstance(files, dict) and files and all(isinstance(text, str) for text in files.values()):
        return of_texts(instance, files)
    if fixture is None and files is None:
        return None
    raise Usage("fixture is a folder, and files are texts by their paths", "files: {src/app.py: …}")


def with_workflows(
    file: File, versions: Callable[[str], tuple[Hash, Oid]], given: tuple[Hash, Oid] | None = None
) -> list[CaseDraft]:
    """Resolve the workflows of a file's cases by `versions`; `given` is the default."""
    versions_here: dict[str, tuple[Hash, Oid] | None] = {"": given}
    drafted = []
    for case, name in file.cases:
        if name not in versions_here:
            versions_here[name] = versions(name)
        version = versions_here[name]
        if version is None:
            drafted.append(CaseDraft(case, ()))
        else:
            drafted.append(CaseDraft(case._replace(workflow=version[0]), (version[1],)))
    return drafted


def with_code(instance: Instance, draft: CaseDraft) -> CaseDraft:
    """Return a case with the code that its step, or its thread's first step, began with. Warns if that is not
    here, or no fixture can be made of it."""
    code = _code(instance, draft)
    if code is None:
        return draft
    name = draft.case.name
    for project in map(Project, clones_of(instance)):
        if project.commit(code.base):
            with tempfile.TemporaryDirectory() as folder:
                try:
                    place = Path(folder, "files")
                    project.lay_out(code.base, place, Path(folder, "index"))
                    return draft._replace(case=draft.case._replace(fixture=store_folder(instance, place)))
                except UwfError as error:
                    instance.warn(f"case {name} has no files of its code: {error.message}; give --fixture")
                    return draft
    instance.warn(
        f"case {name} has no files: its code, commit {code.base[:12]}, is not here; give them with --fixture"
    )
    return draft


def _code(instance: Instance, draft: CaseDraft) -> Revision | None:
    step = draft.case.step
    if step is None:
        return None
    if draft.case.role is not None:
        return code_left(instance, instance.store.step(step).detail)
    revisions = [code_left(instance, past.step.detail) for past in instance.threads.past(step)]
    return next((code for code in reversed(revisions) if code is not None), None)
