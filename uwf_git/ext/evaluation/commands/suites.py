"""`uwf eval` add, import, remove, list and show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uwf_git.ext.evaluation.commands.result_output import (
    case_value,
    parts_of_run,
    parts_value,
    run_value,
    summary,
)
from uwf_git.plugin import (
    Failures,
    Invocation,
    NotFound,
    Record,
    Table,
    Usage,
    command,
    completers,
    counted,
    name_problem,
    one_line,
    resolve,
    terminal,
    time_ago,
    version_of,
)

if TYPE_CHECKING:
    from uwf_git.ext.evaluation.cases import CaseDraft
    from uwf_git.ext.evaluation.records import Case, Judge
    from uwf_git.ext.evaluation.suite import Suite, Suites
    from uwf_git.plugin import CommitRow, Head, Instance

_NAMED = 20  # cases that a line names
TO = click.option(
    "--to",
    "suite",
    metavar="SUITE",
    help="Suite to add to; created if it does not exist.",
    shell_complete=completers.complete_suite,
)
JUDGES = click.option(
    "--judge",
    "judges",
    multiple=True,
    metavar="JUDGE",
    help="Judge: a name of judges in config.yaml, exact[:FIELD,…], jsonata:EXPRESSION, schema:FILE, "
    "workflow:NAME, command:LINE. Repeatable.",
)


@command(
    "uwf eval add 01JK7M --to bugs",
    "uwf eval add @ --to bugs --name csv --fixture repositories/csv --judge tests",
    "uwf eval add 01JK7M@3 --to reviews --judge exact:approved    its third step",
    "uwf eval add 01JK7M 01JK9Q --role reviewer --to reviews      all steps of a role",
)
@click.argument(
    "threads", metavar="ID[@STEP]...", nargs=-1, required=True, shell_complete=completers.complete_thread
)
@TO
@click.option("--name", metavar="NAME", help="Name of the case. Replaces an existing one.")
@click.option("--role", metavar="ROLE", help="Make a case of each step of this role.")
@click.option(
    "--fixture",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder or archive with the files of the case.",
)
@JUDGES
@click.option("--expected", metavar="JSON", help="Expected output for judges. Default: the recorded one.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Tag to select cases by. Repeatable.")
def add(
    invocation: Invocation,
    threads: tuple[str, ...],
    suite: str | None,
    name: str | None,
    role: str | None,
    fixture: Path | None,
    judges: tuple[str, ...],
    expected: str | None,
    tags: tuple[str, ...],
) -> None:
    """Make cases of threads or steps. For a step, its role runs again after the same history.

    The thread is not copied: its commit becomes a parent of the suite's commit. Without --fixture, the files are
    the code that the step, or the thread's first, began with in its worktree.
    """
    from uwf_git.ext.evaluation.cases import fitted, with_code
    from uwf_git.ext.evaluation.fixtures import store_folder
    from uwf_git.ext.evaluation.suite import MOST_COMMITS, Additions

    if suite is None:
        raise Usage("which suite?", "uwf eval add ID --to SUITE")
    instance = invocation.instance
    drafts = [draft for text in threads for draft in _drafted(instance, text, role)]
    if name is not None and len(drafts) != 1:
        raise Usage(f"--name is for one case, and these are {len(drafts)}", "leave it out")
    if name is not None and (problem := name_problem(name)):
        raise Usage(f"the name {name!r} {problem}", "as in csv-export")
    value = resolve.json_value(expected) if expected is not None else None
    given = parse_judges(judges, commands=False) or ()
    with instance.store.together():
        if fixture is None:
            drafts = [with_code(instance, draft) for draft in drafts]
        else:
            given_files = store_folder(instance, fixture.expanduser())
            drafts = [draft._replace(case=draft.case._replace(fixture=given_files)) for draft in drafts]
        drafted = [
            draft._replace(
                case=draft.case._replace(
                    name=name or draft.case.name,
                    judges=given,
                    expected=value,
                    tags=tuple(tags),
                )
            )
            for draft in drafts
        ]
        suites, before = _suites(instance, suite)
        fits = fitted(before, drafted, name is not None)
        for start in range(0, len(fits), MOST_COMMITS):
            some = fits[start : start + MOST_COMMITS]
            commits = [commit for draft in some for commit in draft.commits]
            files = sorted({draft.case.fixture for draft in some if draft.case.fixture})
            suites.add(suite, Additions([draft.case for draft in some], files=files, commits=commits))
    _emit_added(invocation, suite, suites, [draft.case for draft in fits], len(drafted) - len(fits))


def _drafted(instance: Instance, text: str, role: str | None) -> list[CaseDraft]:
    from uwf_git.ext.evaluation.cases import of_step, of_thread, steps_of

    thread, step = split_step(text)
    head = instance.threads.head(instance.threads.find(thread))
    if step is None and role is None:
        return [of_thread(instance, head)]
    rows = steps_of(instance, head)
    if role is not None:
        if step is not None:
            raise Usage(f"{text} names a step, and --role many", "give one of them")
        chosen = [row for row in rows if row.role == role]
        if not chosen:
            raise NotFound(f"thread {head.thread} has no step of {role!r}", f"uwf thread steps {head.thread}")
        return [of_step(instance, row, head) for row in chosen]
    assert step is not None
    return [of_step(instance, _row(head, rows, step), head)]


def split_step(text: str) -> tuple[str, str | None]:
    """Split a thread and step as in 01JK7M@3, @@3 or @2@8FWK; None for the whole thread. Raises Usage."""
    thread, at, step = text.rpartition("@")
    if not at or not thread:
        return text, None
    if not step:
        raise Usage(f"{text!r} names no step after the @", "as in 01JK7M@3")
    return thread, step


def _row(head: Head, rows: Sequence[CommitRow], text: str) -> CommitRow:
    commit_rows = [row for row in rows if text.isdecimal() and row.number == int(text)]
    if not commit_rows and len(text) >= 4:
        commit_rows = [row for row in rows if row.node.startswith(text.upper())]
    if len(commit_rows) != 1:
        raise NotFound(f"thread {head.thread} has no step {text}", f"see: uwf thread steps {head.thread}")
    return commit_rows[0]


def parse_judges(texts: Sequence[str], commands: bool) -> tuple[Judge, ...] | None:
    """Parse judges, None without any. `commands` allows commands, where the giver runs them. Raises Usage."""
    from uwf_git.ext.evaluation.judges import parse_text

    return tuple(parse_text(text, commands) for text in texts) or None


def _suites(instance: Instance, name: str) -> tuple[Suites, Suite | None]:
    from uwf_git.ext.evaluation.suite import Suites

    suites = Suites(instance.store)
    return suites, suites.read(name) if name in suites.names() else None


def _emit_added(invocation: Invocation, name: str, suites: Suites, cases: Sequence[Case], same: int) -> None:
    commit = str(suites.tip(name)) if name in suites.names() else None
    replaced = sum(bool(case.replaces) for case in cases)
    value = {
        "suite": name,
        "commit": commit,
        "added": [case_value(case.name, case) for case in cases],
        "unchanged": same,
    }
    view = Record(
        ("suite", "{suite:bold}"),
        ("added", _names),
        ("replaced", lambda _: str(replaced or "")),
        ("unchanged", lambda value: str(value["unchanged"] or "")),
        ("next", "uwf eval run {suite}"),
    )
    invocation.emit(value, view)


def _names(value: Any) -> str:
    names = ", ".join(case["case"] for case in value["added"][:_NAMED])
    return names + (f", … ({len(value['added'])})" if len(value["added"]) > _NAMED else "")


@command(
    "uwf eval import bugs.yaml",
    "uwf eval import prompts.jsonl --to prompts --workflow solve-issue",
    "uwf eval import tasks --to harbor                 a folder of tasks of Harbor",
)
@click.argument("file", type=click.Path(path_type=Path))
@TO
@click.option(
    "--workflow",
    metavar="W",
    help="Workflow of cases that name none.",
    shell_complete=completers.complete_workflow,
)
def import_(invocation: Invocation, file: Path, suite: str | None, workflow: str | None) -> None:
    """Import cases with prompts and files from a YAML list, a JSON Lines file, or tasks of Harbor.

    Those are a folder with task.toml, or a folder of such; uwf eval verify is their judge. A case replaces the
    one of the same name.
    """
    from uwf_git.ext.evaluation.cases import fitted, read_file, with_workflows
    from uwf_git.ext.evaluation.harbor import read_tasks
    from uwf_git.ext.evaluation.suite import Additions

    instance = invocation.instance_for_writing()
    with instance.store.together():
        read = read_tasks(instance, file) if file.is_dir() else read_file(instance, file)
        name = suite or read.suite or file.name.split(".", 1)[0]

        def version(text: str) -> tuple[Any, Any]:
            resolved_workflow = resolve.find_workflow(invocation, text)
            return resolved_workflow.hash, version_of(instance, resolved_workflow)

        drafted = with_workflows(read, version, version(workflow) if workflow else None)
        suites, before = _suites(instance, name)
        fits = fitted(before, drafted, True)
        files = {draft.case.fixture for draft in fits if draft.case.fixture}
        commits = [commit for draft in fits for commit in draft.commits]
        if fits:
            suites.add(name, Additions([draft.case for draft in fits], files=sorted(files), commits=commits))
    _emit_added(invocation, name, suites, [draft.case for draft in fits], len(drafted) - len(fits))


@command(
    "uwf eval remove bugs csv",
    "uwf eval remove bugs --yes        the whole suite",
)
@click.argument("suite", shell_complete=completers.complete_suite)
@click.argument("cases", metavar="[CASE]...", nargs=-1)
@click.option("--yes", is_flag=True, help="Confirm the removal of the suite.")
def remove(invocation: Invocation, suite: str, cases: tuple[str, ...], yes: bool) -> None:
    """Remove cases from a suite, or a whole suite. Threads and other cases' results are kept."""
    from uwf_git.ext.evaluation.suite import Additions, Suites, lock_of

    instance = invocation.instance
    suites = Suites(instance.store)
    read = suites.read(suite)
    if cases:
        cases_here = [read.case(text) for text in cases]
        suites.add(suite, Additions(removed=[case.hash for case in cases_here]))
        names = [read.named[case.hash] for case in cases_here]
    elif not yes:
        count = counted(len(read.cases), "case")
        raise Usage(f"suite {suite!r} with {count} and their results would be deleted", "repeat with --yes")
    else:
        with instance.locks.turn(
            lock_of(suite)
        ):  # a running evaluation would create it again, without its cases
            suites.remove(suite)
        names = []
    value = {"suite": suite, "removed": names, "forgotten": not cases}
    shown = ", ".join(names) or "the suite"
    invocation.emit(
        value, lambda _: f"removed {terminal.escape(shown)} {'from' if cases else ''} {suite}".strip()
    )


@command("uwf eval list")
def list_(invocation: Invocation) -> None:
    """List the suites with their latest results."""
    from uwf_git.ext.evaluation.suite import Suites

    suites = Suites(invocation.instance.store)
    rows = []
    for name in suites.names():
        suite = suites.read(name)
        last = suite.runs[-1] if suite.runs else None
        rows.append(
            {
                "suite": name,
                "commit": str(suite.commit),
                "cases": len(suite.cases),
                "trials": len(suite.trials),
                "runs": len(suite.runs),
                "last": run_value(last, suite.results(last)) | {"time": last.time // 1000} if last else None,
            }
        )

    invocation.emit(rows, _SUITES)
    Failures(invocation).missing()


def _last(suite: Any) -> str:
    return f"{summary(suite['last'])}  {time_ago(suite['last']['time'])}" if suite["last"] else "never run"


_SUITES = Table(
    *(("", "suite"), ("", "{cases:counted case}"), ("", "{runs:counted run}"), ("", _last)),
    empty="no suites; make one with: uwf eval add ID --to SUITE",
    free=3,
)


@command(
    "uwf eval show bugs",
    "uwf eval show bugs csv",
)
@click.argument("suite", shell_complete=completers.complete_suite)
@click.argument("case", required=False)
def show(invocation: Invocation, suite: str, case: str | None) -> None:
    """Show a suite's cases and results."""
    from uwf_git.ext.evaluation.commands.sides import names_of
    from uwf_git.ext.evaluation.grid import grid
    from uwf_git.ext.evaluation.sides import judges_of, run_name
    from uwf_git.ext.evaluation.suite import Suites

    read = Suites(invocation.instance.store).read(suite)
    cases = [read.case(case)] if case is not None else list(read.cases)
    values = [case_value(read.named[item.hash], item) for item in cases]
    if case is not None:
        invocation.emit(values[0])
        return
    names = names_of(invocation.instance, read)
    tags = {read.named[item.hash]: item.tags for item in read.cases}
    runs = []
    for run in read.runs:
        results = read.results(run)
        more = {
            "said": run_name(run, read, names),
            "judges": sorted(judges_of(results)),
            "time": run.time // 1000,
            **parts_value(results, tags),
        }
        runs.append(run_value(run, results) | more)
    value = {"suite": suite, "commit": str(read.commit), "cases": values, "runs": runs}
    invocation.emit({**value, "grid": grid(invocation.instance, read, names)}, _suite_text)


def _suite_text(value: Mapping[str, Any]) -> str:
    none = f"no cases; uwf eval add ID --to {value['suite']}\n"
    cases = _CASES(value["cases"]) or none
    if not (runs := value["runs"]):
        return cases
    return f"{cases}\n{_RUNS(runs[-10:])}{parts_of_run(runs[-1])}{_grid_text(value['grid'])}"


def _grid_text(value: Mapping[str, Any]) -> str:
    """Return the cases by runs, "" for a single run."""
    if len(value["runs"]) < 2:
        return ""
    header = ("case", *(time_ago(run["time"]) for run in value["runs"]))
    return "\n" + terminal.table(
        [(row["case"], *map(_grid_cell, row["cells"])) for row in value["cases"]], header
    )


def _grid_cell(cell: Mapping[str, Any] | None) -> str:
    from uwf_git.ext.evaluation.comparison import LOSS, WIN

    if cell is None:
        return ""
    score = "–" if cell["score"] is None else f"{cell['score']:.2f}"
    mark, colour = {WIN: ("▲", "green"), LOSS: ("▼", "red")}.get(cell["change"], (" ", ""))
    return str(terminal.style(f"{mark} {score}", colour)) + (" flaky" if cell["flaky"] else "")


_CASES = Table(
    "case",
    ("of", lambda case: case["kind"] if case["role"] is None else f"{case['role']}'s step"),
    ("judged by", lambda case: ", ".join(judge["name"] for judge in case["judges"]) or "no judge"),
    ("task", lambda case: one_line(case["prompt"] or "", 100)),
    free=3,
)
_RUNS = Table(
    *(("", lambda run: time_ago(run["time"])), "run", ("of", "said")),
    ("judged by", lambda run: ", ".join(run["judges"]) or "nobody"),
    ("", summary),
)
