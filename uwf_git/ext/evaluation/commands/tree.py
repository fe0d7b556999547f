"""The group `uwf eval`."""

from __future__ import annotations

from uwf_git.plugin import CommandEntry, Group

eval_baseline = Group(
    "baseline",
    {
        "set": CommandEntry(
            "uwf_git.ext.evaluation.commands.baselines:set_",
            "Set a suite's baseline to the scores of a run.",
        ),
        "show": CommandEntry("uwf_git.ext.evaluation.commands.baselines:show", "Show a suite's baseline."),
        "list": CommandEntry("uwf_git.ext.evaluation.commands.baselines:list_", "List the baselines."),
        "history": CommandEntry(
            "uwf_git.ext.evaluation.commands.baselines:history", "List a suite's baselines, newest first."
        ),
        "propose": CommandEntry(
            "uwf_git.ext.evaluation.commands.baselines:propose", "Propose a baseline without setting it."
        ),
        "accept": CommandEntry(
            "uwf_git.ext.evaluation.commands.baselines:accept", "Set a proposed baseline."
        ),
        "rm": CommandEntry("uwf_git.ext.evaluation.commands.baselines:rm", "Remove a suite's baseline."),
    },
    examples=("uwf eval baseline set issues", "uwf eval baseline show issues"),
    help="Manage baselines: accepted scores of suites.",
)

eval_ = Group(
    "eval",
    {
        "add": CommandEntry("uwf_git.ext.evaluation.commands.suites:add", "Make cases of threads and steps."),
        "import": CommandEntry("uwf_git.ext.evaluation.commands.suites:import_", "Import cases from a file."),
        "remove": CommandEntry("uwf_git.ext.evaluation.commands.suites:remove", "Remove cases or a suite."),
        "list": CommandEntry("uwf_git.ext.evaluation.commands.suites:list_", "List the suites."),
        "show": CommandEntry(
            "uwf_git.ext.evaluation.commands.suites:show", "Show a suite's cases and results."
        ),
        "run": CommandEntry(
            "uwf_git.ext.evaluation.commands.running:run", "Run a suite's cases and judge them."
        ),
        "compare": CommandEntry(
            "uwf_git.ext.evaluation.commands.comparing:compare", "Compare two runs of a suite."
        ),
        "check": CommandEntry(
            "uwf_git.ext.evaluation.commands.checking:check", "Fail if a suite is worse than its baseline."
        ),
        "report": CommandEntry(
            "uwf_git.ext.evaluation.commands.reporting:report", "Write a run as one HTML file."
        ),
        "baseline": eval_baseline,
    },
    examples=(
        "uwf eval add 01JK7M --to bugs",
        "uwf eval run bugs --workflow solve-issue",
        "uwf eval compare solve-issue~1 solve-issue",
    ),
    help="Evaluate workflows and agents with suites of cases.",
)
