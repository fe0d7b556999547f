"""`uwf ci print`, `check` and `comment`."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit

from uwf_git.ext.ci.job import FORGES, OPTIONAL, REQUIRED
from uwf_git.plugin import (
    VERSION,
    Invalid,
    Invocation,
    NotFound,
    NothingToVerify,
    UwfError,
    as_json,
    command,
    command_group,
    failure_of,
    terminal,
    write_whole,
)

if TYPE_CHECKING:
    from uwf_git.ext.ci.job import Job
    from uwf_git.ext.ci.result import Check

OUT = "uwf-ci"
"""The folder that reports are written to."""

COMMENTS = "comments.json"
_LARGEST_COMMENTS = 90_000  # bytes of all of them, for a variable of the environment


@command(
    "uwf ci print github > .github/workflows/uwf.yml",
    "uwf ci print gitlab --comment > uwf-ci.yml",
)
@click.argument("forge", metavar="FORGE", type=click.Choice(FORGES))
@click.option(
    "--comment", is_flag=True, help="With a second job, which may write one comment on each change."
)
@click.option(
    "--claims",
    type=click.Choice((OPTIONAL, REQUIRED)),
    help="Run on each change, for the claims of its text; they may be missing, or must be there.",
)
def print_(invocation: Invocation, forge: str, comment: bool, claims: str | None) -> None:
    """Print the file that makes a forge check a repository.

    FORGE is github, gitlab, forgejo or gitea. The job that it describes may only read, runs nothing that a change
    brings, and installs this version of uwf.
    """
    text = ci_file(forge, comment, claims or "")
    invocation.emit_document(text, {"forge": forge, "comment": comment, "claims": claims, "file": text})


@command("uwf ci check", "uwf ci check --out reports")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=OUT,
    show_default=True,
    metavar="DIR",
    help="Folder for the reports.",
)
@click.option(
    "--claims",
    type=click.Choice((OPTIONAL, REQUIRED)),
    help="Claims may be missing from a change's text, and that is said; or must be there.",
)
def check(invocation: Invocation, out: Path, claims: str | None) -> None:
    """Verify and check what a CI job is about.

    That is a pull or merge request, a pushed branch, or all published branches. Branches are verified as by uwf
    verify; workflows that changed are validated and rehearsed, and their recorded scores held against baselines;
    claims in a change's text are held against the thread that they name. No agent and no code of the change runs.
    Writes JUnit, SARIF, GitLab's code quality, a summary and the text of a comment.

    Exit 7 if a branch or a claim is not what it says, 12 if its history was rewritten, 14 if a requirement is not
    met, 1 if a workflow is invalid or worse, 13 if there is nothing to verify, 125 if checks were left undone.
    """
    from uwf_git.ext.ci.job import read_job
    from uwf_git.ext.ci.result import status_of

    job = read_job(os.environ)
    try:
        folder = _folder(out)
        checks = _checks(job, Path.cwd(), claims or "")
        _write_reports(folder, job, checks)
    except UwfError as error:
        # In a runner's log, the message of an error could hold commands too.
        if job.has_workflow_commands and invocation.chosen_format is None:
            _print_guarded(invocation, f"{error.message}\n{error.hint}")
            raise Exit(failure_of(error).status) from None
        raise
    _print(invocation, job, checks)
    if status := status_of(checks):
        raise Exit(status)


@command("UWF_COMMENT_TOKEN=... uwf ci comment")
def comment(invocation: Invocation) -> None:
    """Write what uwf ci check found as one comment on the pull or merge request.

    The comment of the last result is replaced. The text is taken from UWF_COMMENTS, or uwf-ci/comments.json; the
    token from UWF_COMMENT_TOKEN.
    """
    from uwf_git.ext.ci.comments import api_of, read_bodies, write_comments
    from uwf_git.ext.ci.job import read_job

    job = read_job(os.environ)
    bodies = read_bodies(os.environ.get("UWF_COMMENTS") or _read(Path(OUT) / COMMENTS))
    token = os.environ.get("UWF_COMMENT_TOKEN", "")
    with api_of(job, token) as api:
        written = write_comments(api, job, bodies)

    def text(rows: Any) -> str:
        lines = [
            f"{'#' + str(row['number']) if row['number'] else row['branch'] or '-'}  {row['done']}"
            for row in rows
        ]
        return "\n".join(lines) or "there is nothing to write"

    invocation.emit([item._asdict() for item in written], text)


def _checks(job: Job, folder: Path, claims: str) -> list[Check]:
    from uwf_git.ext.ci.changed_workflows import changed_workflows
    from uwf_git.ext.ci.checkout import Checkout
    from uwf_git.ext.ci.claims import checked_claims
    from uwf_git.ext.ci.job import CHANGE
    from uwf_git.ext.ci.result import Check, Problem
    from uwf_git.ext.ci.scores import checked_scores
    from uwf_git.ext.ci.verification import verify_subject

    checkout = Checkout(folder)
    subjects = checkout.subjects(job)
    checks: list[Check] = []
    for subject in subjects:
        verified = verify_subject(checkout, subject)
        changed = list(changed_workflows(checkout, subject))
        claimed = checked_claims(checkout, subject, job, claims) if job.about == CHANGE else None
        its = [] if verified.is_empty and (changed or claimed) else [verified.check]
        its += [claimed] if claimed else []
        its += (item.check for item in changed)
        compiled = {item.check.name: item.compiled for item in changed if item.compiled is not None}
        its += checked_scores(checkout, compiled)
        # The files of a branch are not those that the job is shown beside.
        checks += its if job.about == CHANGE else [_in_branch(check, subject.name) for check in its]
    if not subjects:
        message = "there is no published branch"
        problem = Problem("error", NothingToVerify.code, message)
        checks.append(Check("branch", "uwf/*", NothingToVerify.exit_status, message, (problem,)))
    return checks


def _in_branch(check: Check, branch: str) -> Check:
    """Return a check of a branch, with the places of its problems in their messages."""
    problems = []
    for problem in check.problems:
        where = f"{problem.place}: " if problem.path else ""
        problems.append(problem._replace(message=f"{branch}: {where}{problem.message}", path="", line=0))
    name = f"{branch}:{check.name}" if check.kind == "workflow" else check.name
    return check._replace(name=name, problems=tuple(problems))


def _print(invocation: Invocation, job: Job, checks: Sequence[Check]) -> None:
    from uwf_git.ext.ci.reports import annotated

    value = _value(checks)
    if invocation.chosen_format == "json" and job.has_workflow_commands:
        invocation.write(as_json(value).replace("##[", "#\\u0023["))  # the same, and no command
    elif invocation.chosen_format in ("json", "yaml"):
        invocation.emit(value)
    elif job.has_workflow_commands:
        _print_guarded(invocation, _text(checks))
        invocation.write(annotated(problem for check in checks for problem in check.problems))
    else:
        invocation.write(terminal.escape(_text(checks)))


def _value(checks: Sequence[Check]) -> dict[str, Any]:
    from uwf_git.ext.ci.result import status_of

    return {"status": status_of(checks), "checks": [check.to_json() for check in checks]}


def _print_guarded(invocation: Invocation, text: str) -> None:
    from uwf_git.ext.ci.reports import guarded

    invocation.write(guarded(terminal.escape(text)))


def _text(checks: Sequence[Check]) -> str:
    lines = []
    for check in checks:
        lines.append(f"{check.kind} {check.name}: {check.summary}")
        lines += [f"  {problem.text}" for problem in check.problems]
    return "\n".join(lines) + "\n"


def _write_reports(folder: Path, job: Job, checks: Sequence[Check]) -> None:
    from uwf_git.ext.ci.reports import code_quality, junit_report, sarif
    from uwf_git.ext.ci.summary import LARGEST_SUMMARY, markdown

    summary = markdown(checks, LARGEST_SUMMARY)
    comments = _comments(job, checks)
    reports = {
        "junit.xml": junit_report(checks),
        "uwf.sarif": as_json(sarif(checks)),
        "code-quality.json": as_json(code_quality(checks)),
        "summary.md": summary,
        "result.json": as_json(_value(checks)),
        COMMENTS: comments,
    }
    for name, text in reports.items():
        write_whole(folder / name, text.encode("utf-8", "replace"), force=True)
    _append("GITHUB_STEP_SUMMARY", summary)
    _append("GITHUB_OUTPUT", _output("comments", comments))


def _comments(job: Job, checks: Sequence[Check]) -> str:
    """Return the bodies for the job that writes: one of a change, else one of each branch, while there is room."""
    from uwf_git.ext.ci.comments import MOST, Body, handed_over
    from uwf_git.ext.ci.job import CHANGE, named_branch
    from uwf_git.ext.ci.summary import LARGEST_COMMENT, markdown

    if job.about == CHANGE:
        return handed_over([Body("", markdown(checks, LARGEST_COMMENT))])
    bodies: list[Body] = []
    for of_branch in _by_branch(checks):
        if not (branch := named_branch(of_branch[0].name)):
            continue
        body = Body(branch, markdown(of_branch, LARGEST_COMMENT))
        if (
            len(bodies) < MOST
            and len(handed_over([*bodies, body]).encode("utf-8", "replace")) < _LARGEST_COMMENTS
        ):
            bodies.append(body)
    return handed_over(bodies)


def _by_branch(checks: Sequence[Check]) -> list[list[Check]]:
    """Group the checks of a sweep: each branch's comes first."""
    checkses: list[list[Check]] = []
    for check in checks:
        if check.kind == "branch":
            checkses.append([check])
        elif checkses:
            checkses[-1].append(check)
    return checkses


def _folder(path: Path) -> Path:
    """Return the folder for reports, made if need be. A link in a checkout must not lead elsewhere. Raises
    Invalid."""
    here = Path()
    for part in path.parts:
        here = here / part
        try:
            mode = here.lstat().st_mode
        except FileNotFoundError:
            mode = 0
        if not path.is_absolute() and stat.S_ISLNK(mode):
            raise Invalid(f"{here} is a link in the checkout", "name another folder: --out DIR")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Invalid(f"cannot make {path}: {error.strerror}", "name another folder: --out DIR") from None
    return path


def _append(variable: str, text: str) -> None:
    """Append to a file of the runner's, if there is one."""
    if not (name := os.environ.get(variable)):
        return
    try:
        with Path(name).open("a", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError as error:
        raise Invalid(f"cannot write {variable}: {error.strerror}", "it names a file of the runner") from None


def _output(name: str, value: str) -> str:
    """Return a step's output; its end is a random word."""
    word = secrets.token_hex(16)
    return f"{name}<<{word}\n{value}\n{word}\n"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NotFound(f"no file {path}", "set UWF_COMMENTS, or run uwf ci check before") from None
    except (OSError, ValueError):
        raise Invalid(f"cannot read {path}", "run uwf ci check before") from None


_TEMPLATES = Path(__file__).parent / "templates"
_PLACES = {
    "github": ".github/workflows/uwf.yml",
    "gitlab": "uwf-ci.yml",
    "forgejo": ".forgejo/workflows/uwf.yml",
    "gitea": ".gitea/workflows/uwf.yml",
}


def ci_file(forge: str, comment: bool, claims: str = "") -> str:
    """Return a forge's file. With `comment`, a second job may write one comment on a pull request; with `claims` it
    runs on each of them.

    In a template, lines from `#@if WORD...` to `#@end` are for these forges, for `comment`, `claims` and, without
    claims, `paths`; `comment+github` is for both.
    """
    assert forge in FORGES
    name = "gitlab.yml" if forge == "gitlab" else "actions.yml"
    words = {forge, "claims" if claims else "paths"}
    if comment:
        words |= {"comment", *(f"comment+{word}" for word in words)}
    text = "".join(_chosen((_TEMPLATES / name).read_text(encoding="utf-8"), words))
    option = f" --claims {claims}" if claims else ""
    named = (f"{forge} --comment" if comment else forge) + option
    return (
        text.replace("@FORGE@", named)
        .replace("@CLAIMS@", option)
        .replace("@PLACE@", _PLACES[forge])
        .replace("@VERSION@", VERSION)
    )


def _chosen(text: str, words: set[str]) -> Iterator[str]:
    is_in = True
    for line in text.splitlines(keepends=True):
        if line.startswith("#@if "):
            is_in = not words.isdisjoint(line.split()[1:])
        elif line.startswith("#@end"):
            is_in = True
        elif is_in:
            yield line


ci = command_group(
    "uwf_git.ext.ci",
    "ci",
    {
        "print": ("commands", "Print the file that a repository needs."),
        "check": ("commands", "Check what a CI job is about."),
        "comment": ("commands", "Write the result as one comment."),
    },
    examples=(
        "uwf ci print github > .github/workflows/uwf.yml",
        "uwf ci print gitlab > uwf-ci.yml",
    ),
    help="Check published threads and changed workflows in a forge's CI.",
)
