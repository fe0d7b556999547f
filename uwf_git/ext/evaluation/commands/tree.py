"""The group `uwf eval`."""

from __future__ import annotations

from uwf_git.plugin import command_group

eval_baseline = command_group(
    "uwf_git.ext.evaluation.commands",
    "baseline",
    {
        "set": ("baselines", "Set a suite's baseline to the scores of a run."),
        "show": ("baselines", "Show a suite's baseline."),
        "list": ("baselines", "List the baselines."),
        "history": ("baselines", "List a suite's baselines, newest first."),
        "propose": ("baselines", "Propose a baseline without setting it."),
        "accept": ("baselines", "Set a proposed baseline."),
        "rm": ("baselines", "Remove a suite's baseline."),
    },
    examples=("uwf eval baseline set issues", "uwf eval baseline show issues"),
    help="Manage baselines: accepted scores of suites.",
)

eval_ = command_group(
    "uwf_git.ext.evaluation.commands",
    "eval",
    {
        "add": ("suites", "Make cases of threads and steps."),
        "import": ("suites", "Import cases from a file or tasks of Harbor."),
        "remove": ("suites", "Remove cases or a suite."),
        "list": ("suites", "List the suites."),
        "show": ("suites", "Show a suite's cases and results."),
        "run": ("running", "Run a suite's cases and judge them."),
        "verify": ("verifying", "Judge a trial by the tests of its Harbor task."),
        "compare": ("comparing", "Compare two runs of a suite."),
        "check": ("checking", "Fail if a suite is worse than its baseline."),
        "report": ("reporting", "Write a run as a page, or for Inspect."),
        "baseline": eval_baseline,
    },
    examples=(
        "uwf eval add 01JK7M --to bugs",
        "uwf eval run bugs --workflow solve-issue",
        "uwf eval compare solve-issue~1 solve-issue",
    ),
    help="Evaluate workflows and agents with suites of cases.",
)
