"""A definition whose source was edited on a forge: it must compile, and all that uwf makes of it must be as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from uwf_git.base.errors import UwfError
from uwf_git.base.timelimit import TimeExceeded, time_limit
from uwf_git.git.repository import Oid, Repository
from uwf_git.store import ref_kinds
from uwf_git.verify.definition import SECONDS, line_in
from uwf_git.verify.findings import Finding
from uwf_git.verify.objects import COUNT_LIMIT, FILE, FOLDER, Objects, shown_name
from uwf_git.verify.uncommitted import DEFINITION_FILES

if TYPE_CHECKING:
    from uwf_git.verify.branch_history import ForeignCommit


class Edit(NamedTuple):
    """An edit of a definition's source: the `path` of the first changed file, and why it does not compile, None if it
    does."""

    path: str
    problem: Finding | None


def edit_of(
    repository: Repository, objects: Objects, commit: ForeignCommit, kind: str, before: bytes
) -> Edit | None:
    """Return the edit that a commit makes of a definition with the tree `before`, None if it changes other files than
    its source, or none."""
    now, then = _files(objects, commit.tree), _files(objects, before)
    changed = sorted(path for path in now.keys() | then.keys() if now.get(path) != then.get(path))
    folders = ref_kinds.registering(kind).foreign
    sources = [path for path in changed if path in DEFINITION_FILES or path.startswith(folders)]
    if not sources or len(sources) != len(changed):
        return None
    return Edit(sources[0], _compile_problem(repository, commit, kind, sources[0]))


def _files(objects: Objects, tree: bytes) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    pending = [("", tree)]
    for prefix, folder in pending:  # grows while it is walked
        if len(pending) > COUNT_LIMIT:
            break
        for mode, name, oid in objects.tree(folder):
            path = prefix + shown_name(name)
            if mode == FOLDER:
                pending.append((f"{path}/", oid))
            else:
                files[path] = oid if mode == FILE else mode + oid
    return files


def _compile_problem(repository: Repository, commit: ForeignCommit, kind: str, path: str) -> Finding | None:
    from uwf_git.store.definitions import class_of
    from uwf_git.store.version_files import VersionFiles

    files = VersionFiles(repository, Oid(raw=commit.tree), "the branch")
    line = 0
    try:
        with time_limit(SECONDS):
            class_of(kind).read(files)
        return None
    except TimeExceeded:
        problem = f"takes over {SECONDS:g} s to compile"
    except UwfError as error:
        problem = f"does not compile: {error.message}"
        line = line_in(error.message, path)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, MemoryError) as error:
        problem = f"does not compile: {type(error).__name__}"
    message = f"{path}, as {commit.description} left it, {problem}"
    return Finding("bad-source", None, None, str(commit.oid), message, "", path, line)
