"""`uwf eval check`: a suite against its baseline, for CI and `git bisect run`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from uwf_git.ext.evaluation.commands.comparing import compared_text, compared_value, judged_otherwise, percent
from uwf_git.ext.evaluation.commands.running import RunOptions, carried_out, continue_hint, running
from uwf_git.ext.evaluation.commands.sides import BASELINE, find_side, names_of
from uwf_git.ext.evaluation.comparison import LOSS, SAME
from uwf_git.ext.evaluation.records import ERROR
from uwf_git.ext.evaluation.sides import likest, matching, side_of
from uwf_git.ext.evaluation.suite import Suites
from uwf_git.plugin import (
    CommandClass,
    Invalid,
    Invocation,
    NotFound,
    Number,
    Undecided,
    Worse,
    command,
    completers,
    counted,
    resolve,
    terminal,
    write_whole,
)

if TYPE_CHECKING:
    from uwf_git.ext.evaluation.comparison import Drop
    from uwf_git.ext.evaluation.records import Result, SuiteRun
    from uwf_git.ext.evaluation.sides import Side
    from uwf_git.ext.evaluation.suite import Suite
    from uwf_git.plugin import CaseOutcome

PASSED, WORSE, UNDECIDED = "passed", "worse", "undecided"

SHOWN = 5
"""Cases that an error names."""


class _ForBisect(CommandClass):
    """A command with exit statuses for `git bisect run`: 0 good, 1 bad, 125 undecided, 128 and more stop, so
    that errors never count against a commit."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if parent is not None and not parent.resilient_parsing:
            parent.ensure_object(Invocation).exit_status = _for_bisect
        return super().make_context(info_name, args, parent, **extra)


def _for_bisect(code: str, status: int) -> int:
    return status if code in (Worse.code, Undecided.code) or status >= 128 else 128 + status


class _Judges(NamedTuple):
    """Whether both sides had the same judges, None if only names are known. `said` is the message, or ""."""

    same: bool | None
    said: str = ""


def _judges(base: Side, now: Side, against: str) -> _Judges:
    called = f"the {BASELINE}" if against == BASELINE else against
    if reason := judged_otherwise(base, now, (called, "this run")):
        return _Judges(False, reason)
    if base.judged is None and base.scored:
        reason = (
            f"run {base.run} of {called} isn't here, so that nobody knows more of its judges than their names"
        )
        return _Judges(None, reason)
    return _Judges(True)


def verdict_of(fallen: Drop) -> str:
    if fallen.is_worse:
        return WORSE
    return PASSED if fallen.is_decided else UNDECIDED


def check_value(
    compared: Mapping[str, Any], fallen: Drop, gone: Iterable[str], judges: _Judges, must_be_same: bool
) -> dict[str, Any]:
    """Return the JSON; `gone` are the baseline's cases that no longer count."""
    return {
        "suite": compared["suite"],
        "verdict": UNDECIDED if must_be_same and judges.said else verdict_of(fallen),
        "sameJudges": judges.same,
        "drop": {
            "least": round(fallen.least, 6) + 0.0,
            "most": round(fallen.most, 6) + 0.0,
            "allowed": fallen.allowed,
            "chance": round(fallen.chance, 6) + 0.0,
            "allowedEach": fallen.allowed_each,
        },
        "worseCases": [
            {
                "case": item.case,
                "drop": round(-item.difference, 6),
                "before": round(item.a.score, 6),
                "now": round(item.b.score, 6),
                "chance": None if (chance := fallen.lower[item.case]) is None else round(chance, 6),
            }
            for item in fallen.lost
            if item.case in fallen.lower
        ],
        "unsureCases": list(fallen.unsure),
        "missing": list(fallen.missing),
        "gone": sorted(gone),
        **compared,
    }


def check_text(value: Mapping[str, Any]) -> str:
    colour = {PASSED: "green", WORSE: "red"}.get(value["verdict"], "yellow")
    drop = value["drop"]
    sentence = f"{_lower(drop)} is allowed" if value["cases"] else "nothing was compared"
    if drop["least"] - drop["chance"] <= drop["allowed"] + SAME < drop["least"]:
        sentence += f", but chance alone may make {drop['chance']:.2f} of it"
    more = [_worse_case(item) for item in value["worseCases"]]
    more += [f"{case} may be worse, or unlucky" for case in value["unsureCases"]]
    lines = "".join(f"  {item}\n" for item in more)
    return f"{compared_text(value)}\n{terminal.style(value['verdict'], colour)}  {sentence}\n{lines}"


def _worse_case(case: Mapping[str, Any]) -> str:
    sure = "" if case["chance"] is None else f", which chance does in {percent(case['chance'])} of checks"
    return f"{case['case']} is worse: {case['before']:.2f} before, {case['now']:.2f} now{sure}"


def _lower(drop: Mapping[str, float]) -> str:
    least, most, allowed = (drop[key] for key in ("least", "most", "allowed"))
    digits = 2
    while digits < 9 and f"{least:.{digits}f}" == f"{allowed:.{digits}f}" and abs(least - allowed) > SAME:
        digits += 1
    if least != most:
        lower = f"lower by {least:.{digits}f} to {most:.{digits}f}"
    else:
        by = f"by {abs(least):.{digits}f}"
        lower = f"lower {by}" if least > 0 else f"higher {by}" if least < 0 else "as high"
    return f"{lower}, and {allowed:.{digits}f}"


def raise_unless_passed(
    value: Mapping[str, Any], fallen: Drop, base: Side, now: Side, results: Sequence[Result], unlike: str
) -> None:
    """Raise Worse or Undecided by the verdict; arguments as for `checked`."""
    suite, drop = value["suite"], value["drop"]
    if value["verdict"] == WORSE:
        why = [f"its score is {_lower(drop)} is allowed"] if fallen.is_too_much else []
        why += [_worse_case(item) for item in value["worseCases"][:SHOWN]]
        more = len(value["worseCases"]) - SHOWN
        why += [counted(more, "more case")] if more > 0 else []
        raise Worse(
            f"suite {suite} is worse: {'; '.join(why)}",
            f"case by case: uwf eval compare {base.run} {now.run} --suite {suite}",
        )
    open_ = f"whether suite {suite} is worse cannot be told"
    if unlike and value["cases"]:
        set_ = f"accept what is judged like this: uwf eval baseline set {suite}"
        hint = set_ if value["sameJudges"] is False else f"uwf pull brings it, or {set_}"
        raise Undecided(f"{open_}: {unlike}", hint)
    if value["verdict"] == PASSED:
        return
    if fallen.is_perhaps_chance or fallen.unsure:
        lower = f"its score is {_lower(drop)} is allowed"
        if not fallen.is_perhaps_chance:
            lower = f"{fallen.unsure[0]} is lower by more than {fallen.allowed_each:g}"
        often = 2 * max(item["b"]["runs"] for item in value["cases"])
        raise Undecided(
            f"{open_}: {lower}, but that may be chance",
            f"try each case more often: --repeat {often}; or allow more: --max-drop, --max-case-drop",
        )
    if not fallen.missing:
        raise Undecided(
            f"{open_}: no case has a score now and in {base.said}",
            f"accept what there is now: uwf eval baseline set {suite}",
        )
    many, case = counted(len(fallen.missing), "case"), fallen.missing[0]
    have = "has" if len(fallen.missing) == 1 else "have"
    reason = f", {now.unknown[case]}" if case in now.unknown else ""
    broken = next((result for result in results if result.name == case and result.state == ERROR), None)
    raise Undecided(
        f"{open_}: {many} {have} no score, such as {case}{reason}",
        continue_hint(broken) if broken else f"run it to its end: uwf eval run {suite}",
    )


def checked(
    value: Mapping[str, Any], fallen: Drop, now: Side, results: Sequence[Result], unlike: str
) -> list[CaseOutcome]:
    """Return the cases for a CI server: failures cause the check's failure, errors leave it undecided.
    `results` have the judgements; `unlike` is why the sides cannot be compared, or ""."""
    from uwf_git.plugin import CASE_SKIPPED, FAILED, CaseOutcome
    from uwf_git.plugin import ERROR as UNSURE

    types = {FAILED: "worse", UNSURE: "unknown", CASE_SKIPPED: "apart", "": ""}
    reasons: dict[str, list[str]] = {}
    for result in results:
        why = [f"{score.judge.name}: {score.reason}" for score in result.scores if score.reason]
        reasons.setdefault(result.name, []).extend(why)
    lower = {entry["case"]: entry for entry in value["worseCases"]}
    outcomes = []
    for item in value["cases"]:
        one, other = item["a"], item["b"]
        sentence = f"{one['score']:.2f} before, {other['score']:.2f} now"
        case, is_lower = item["case"], item["outcome"] == LOSS
        if case in lower:
            sentence = _worse_case(lower[case])
        seconds = other["seconds"] * other["runs"]
        whole = "\n".join([sentence, *reasons.get(case, ())])
        if unlike:
            wrong = UNSURE
        elif case in lower or (is_lower and fallen.is_too_much):
            wrong = FAILED
        elif case in fallen.unsure or (is_lower and not fallen.is_worse and fallen.is_perhaps_chance):
            wrong = UNSURE
        else:
            wrong = ""
        message = (unlike or sentence) if wrong else ""
        outcomes.append(CaseOutcome(case, seconds, wrong, message, whole, types[wrong]))
    apart = dict.fromkeys(value["gone"], "it counts no longer")
    apart |= dict.fromkeys(value["onlyB"], "it is not in the baseline")
    outcomes += [
        CaseOutcome(case, 0.0, CASE_SKIPPED, reason, reason, types[CASE_SKIPPED])
        for case, reason in apart.items()
    ]
    unsure = UNSURE if value["verdict"] == UNDECIDED else CASE_SKIPPED
    for case in sorted({*value["missing"], *now.unknown}):
        sentence = f"no score: {now.unknown.get(case, 'it was not run')}"
        outcomes.append(CaseOutcome(case, 0.0, unsure, sentence, sentence, types[unsure]))
    return sorted(outcomes, key=lambda outcome: outcome.name)


@command(
    "uwf eval check issues --workflow solve-issue.yaml",
    "uwf eval check issues --max-drop 0.05 --repeat 5 --junit eval.xml",
    "uwf eval check issues --workflow solve-issue.yaml --recorded",
    "git bisect run uwf eval check issues --workflow solve-issue.yaml",
    cls=_ForBisect,
)
@click.argument("suite", shell_complete=completers.complete_suite)
@click.option(
    "--max-drop",
    type=Number(0, 1),
    default=0.0,
    show_default=True,
    metavar="X",
    help="Allow the average score to drop by X.",
)
@click.option(
    "--max-case-drop",
    type=Number(0, 1),
    metavar="X",
    help="Allow each case's score to drop by X. Default: only a significant drop fails.",
)
@click.option(
    "--against",
    default=BASELINE,
    show_default=True,
    metavar="RUN",
    help="Compare with this instead of the baseline; as for uwf eval compare.",
)
@click.option(
    "--same-judges",
    is_flag=True,
    help="Exit 125 instead of warning if the baseline had other judges.",
)
@click.option(
    "--recorded", is_flag=True, help="Run nothing: judge the newest recorded run of the workflow's version."
)
@click.option(
    "--junit", type=click.Path(path_type=Path), metavar="FILE", help="Also write JUnit XML to this file."
)
@running
def check(
    invocation: Invocation,
    suite: str,
    max_drop: float,
    max_case_drop: float | None,
    against: str,
    same_judges: bool,
    recorded: bool,
    junit: Path | None,
    options: RunOptions,
) -> None:
    """Run a suite and fail if its score is lower than its baseline's.

    Known results are not run again. Exit 0 if nothing is worse, 1 if the average or a case is significantly
    lower, 125 if it cannot be decided (differences within chance, cases without a score, an invalid
    workflow), 128 or more on errors: suitable for git bisect run.
    """
    from uwf_git.ext.evaluation.comparison import by_case, compare, drop

    instance = invocation.instance
    suites = Suites(instance.store)
    if junit is not None and (junit.is_dir() or not os.access(junit.parent, os.W_OK)):
        raise Invalid(f"cannot write {junit}", "name another file")  # before anybody is paid
    before = suites.read(suite)
    like = find_side(invocation, before, against)  # run nothing without a baseline
    _require_workflow(invocation, options.workflow)
    if recorded:
        read = before
        run, results, now = _recorded(invocation, read, options, like)
    else:
        done = carried_out(invocation, suite, (), (), options)
        read, run, results = suites.read(suite), done.run, done.results
        now = side_of(read, run, names_of(instance, read), results, done.untried)
    base = find_side(invocation, before, against, like=now)
    # For a changed case without a score, the variation of similar cases is known.
    gone = by_case(base.gone)
    changed = [scored_run for scored_run in base.gone if scored_run.case in now.unknown]
    comparison = compare(base.scored, now.scored)
    compared = compared_value(read, base, now, comparison)
    fallen = drop((*base.scored, *changed), now.scored, max_drop, max_case_drop, comparison.difference)
    judges = _judges(base, now, against)
    value = check_value(compared, fallen, gone.keys() - now.unknown.keys(), judges, same_judges)
    unlike = judges.said if same_judges else ""
    if judges.said and not unlike:
        invocation.warn(f"the scores may not mean the same: {judges.said}")
    _warn_of_apart(invocation, value, now)
    if junit is not None:
        from uwf_git.plugin import junit as written

        about = [("baseline", base.said), ("run", now.said), ("verdict", value["verdict"])]
        about += [(name, said) for name, said in (("stopped", run.stopped), ("judges", judges.said)) if said]
        text = written(suite, checked(value, fallen, now, results, unlike), about)
        write_whole(junit, text.encode("utf-8", "replace"), force=True)
    invocation.emit(value, check_text)
    raise_unless_passed(value, fallen, base, now, results, unlike)


def _recorded(
    invocation: Invocation, suite: Suite, options: RunOptions, like: Side
) -> tuple[SuiteRun, Sequence[Result], Side]:
    """Return the newest run of a version, judged as the other side was if there is one. Raises Undecided."""
    version = resolve.find_version(invocation, options.workflow).hash if options.workflow else None
    runs = {run.hash: run for run in matching(suite, version, options.agent)}
    if not runs:
        chosen = f" --workflow {options.workflow}" if options.workflow else ""
        raise Undecided(
            f"suite {suite.name} has no recorded run of this version"
            if version
            else f"suite {suite.name} has no recorded run",
            f"run it where its agents may: uwf eval run {suite.name}{chosen}",
        )
    names = names_of(invocation.instance, suite)
    now = likest((side_of(suite, run, names) for run in runs.values()), like)
    run = runs[now.run]
    return run, suite.results(run), now


def _warn_of_apart(invocation: Invocation, value: Mapping[str, Any], now: Side) -> None:
    missing = value["missing"] if value["verdict"] != UNDECIDED else []
    apart = {
        "of the baseline, changed or taken out since": value["gone"],
        "of the baseline, without a score now": missing,
        "new since the baseline": value["onlyB"],
        "without a score, new since the baseline": sorted(now.unknown.keys() - {*value["missing"]}),
    }
    for reason, cases in apart.items():
        if cases:
            why = f", {now.unknown[cases[0]]}" if cases[0] in now.unknown else ""
            invocation.warn(f"not compared: {counted(len(cases), 'case')} {reason}, such as {cases[0]}{why}")


def _require_workflow(invocation: Invocation, text: str | None) -> None:
    try:
        if text is not None:
            resolve.find_version(invocation, text)
    except (Invalid, NotFound) as error:
        raise Undecided(f"{text} cannot be judged: {error.message}", error.hint) from None
