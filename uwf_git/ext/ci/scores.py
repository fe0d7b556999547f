"""Recorded scores of a changed workflow against the baselines of its suites.

No agent runs: a CI job of a change must not pay or act for it. So only a suite with results for exactly this version
can be judged; of another it is said how to get them. Suites and baselines are pulled from the
job's checkout into a temporary store, which verifies them.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from uwf_git.ext.ci.checkout import Checkout
from uwf_git.ext.ci.result import Check, Problem
from uwf_git.ext.ci.summary import block, span
from uwf_git.ext.ci.temporary_store import call_uwf
from uwf_git.plugin import Compiled, Undecided, UwfError, Worse

SUITES, BASELINES = "refs/uwf/evals/", "refs/uwf/baselines/"
MOST = 20
"""Suites that one workflow is held against."""


def checked_scores(checkout: Checkout, workflows: Mapping[str, Compiled]) -> Iterator[Check]:
    """Yield a check for each suite with a baseline of one of these workflows, by the path of its file."""
    suites = {name.removeprefix(SUITES) for name in checkout.branches(SUITES)}
    names = {name.removeprefix(BASELINES) for name in checkout.branches(BASELINES)} & suites
    if not names or not workflows:
        return
    with tempfile.TemporaryDirectory(prefix="uwf-ci-") as folder:
        root = Path(folder) / "root"
        code, _, error = call_uwf(root, "clone", str(checkout.git_dir))
        baselines: Any = None
        if not code:
            code, baselines, error = call_uwf(root, "eval", "baseline", "list")
        if code:
            problem = f"the suites cannot be read: {error}"
            yield Check("suite", "*", UwfError.exit_status, problem, (Problem("error", "suites", problem),))
            return
        for path, compiled in workflows.items():
            file = _written(Path(folder), path, compiled)
            theirs = [item for item in baselines or () if _is_of(root, item, compiled.workflow.name)]
            for baseline in theirs[:MOST]:
                yield _checked(root, str(baseline["suite"]), path, file)
            if len(theirs) > MOST:
                message = f"{len(theirs) - MOST} more suites have a baseline of {path}"
                yield Check(
                    "suite",
                    "*",
                    Undecided.exit_status,
                    message,
                    (Problem("error", "unchecked", message, path, 1),),
                )


def _checked(root: Path, suite: str, path: str, file: Path) -> Check:
    code, value, error = call_uwf(root, "eval", "check", suite, "--workflow", str(file), "--recorded")
    verdict = value.get("verdict") if isinstance(value, dict) else None
    if code == 0:
        return Check(
            "suite", suite, 0, "not worse than its baseline", page=_page(suite, value), value=_kept(value)
        )
    if code == Worse.exit_status:
        problem = Problem("error", Worse.code, error, path, 1)
        return Check(
            "suite", suite, code, "worse than its baseline", (problem,), _page(suite, value), _kept(value)
        )
    if code == Undecided.exit_status:
        how = f"uwf eval run {shlex.quote(suite)} --workflow {shlex.quote(path)}\nuwf push"
        page = f"Suite {span(suite)} was not judged: {span(error, 300)}. No agent runs here; on your machine:"
        page += f"\n\n{block(how)}"
        message = "not judged: " + error
        return Check(
            "suite", suite, 0, message, (Problem("note", Undecided.code, error, path, 1),), page, _kept(value)
        )
    message = error or f"uwf eval check ended with {code} ({verdict})"
    return Check(
        "suite", suite, UwfError.exit_status, message, (Problem("error", "suites", message, path, 1),)
    )


def _is_of(root: Path, baseline: Any, workflow: str) -> bool:
    """Return whether a baseline, as listed, is of a workflow with this name."""
    if not isinstance(baseline, dict) or "suite" not in baseline:
        return False
    side = str(baseline.get("said", ""))
    return side.partition(" ")[0] == workflow


def _written(folder: Path, path: str, compiled: Compiled) -> Path:
    """Return a copy of a workflow's file, with those that it includes, outside of the checkout."""
    place = Path(tempfile.mkdtemp(dir=folder))
    file = place / Path(path).name
    file.write_bytes(compiled.source.text)
    for name, data in compiled.source.includes.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(data)
    return file


def _kept(value: Any) -> dict[str, Any]:
    names = ("verdict", "drop", "worseCases", "unsureCases")
    return {name: value[name] for name in names if name in value} if isinstance(value, dict) else {}


def _page(suite: str, value: Any) -> str:
    if not isinstance(value, dict):
        return ""
    lines = [f"Suite {span(suite)}: {span(str(value.get('verdict', '')))}, of recorded scores."]
    for item in value.get("worseCases", ())[:MOST]:
        lines.append(f"- {span(str(item['case']))}: {item['before']:.2f} before, {item['now']:.2f} now")
    return "\n".join(lines)
