"""The group `uwf eval`."""

from __future__ import annotations

from uwf_cli.command import Group, Place

eval_baseline = Group(
    "baseline",
    {
        "set": Place(
            "uwf_git.ext.evaluation.commands.baselines:set_",
            "Accept the scores of a run as what others are held against.",
        ),
        "show": Place("uwf_git.ext.evaluation.commands.baselines:show", "Show a suite's baseline."),
        "list": Place("uwf_git.ext.evaluation.commands.baselines:list_", "List the baselines."),
        "history": Place(
            "uwf_git.ext.evaluation.commands.baselines:history", "List a suite's baselines, newest first."
        ),
        "propose": Place(
            "uwf_git.ext.evaluation.commands.baselines:propose", "Propose a baseline without setting it."
        ),
        "accept": Place(
            "uwf_git.ext.evaluation.commands.baselines:accept", "Set a baseline that was proposed."
        ),
        "rm": Place("uwf_git.ext.evaluation.commands.baselines:rm", "Forget a suite's baseline."),
    },
    examples=("uwf eval baseline set issues", "uwf eval baseline show issues"),
    help="What is accepted as good of a suite.",
)

eval_ = Group(
    "eval",
    {
        "add": Place(
            "uwf_git.ext.evaluation.commands.suites:add", "Make cases of threads and of their steps."
        ),
        "import": Place("uwf_git.ext.evaluation.commands.suites:import_", "Take in cases from a file."),
        "remove": Place(
            "uwf_git.ext.evaluation.commands.suites:remove", "Take cases out of a suite, or forget a suite."
        ),
        "list": Place("uwf_git.ext.evaluation.commands.suites:list_", "List the suites."),
        "show": Place(
            "uwf_git.ext.evaluation.commands.suites:show", "Show a suite's cases, and what its runs came to."
        ),
        "run": Place("uwf_git.ext.evaluation.commands.running:run", "Try cases and have them judged."),
        "compare": Place(
            "uwf_git.ext.evaluation.commands.comparing:compare", "Compare two runs of a suite case by case."
        ),
        "check": Place(
            "uwf_git.ext.evaluation.commands.checking:check", "Fail where a suite is worse than its baseline."
        ),
        "report": Place(
            "uwf_git.ext.evaluation.commands.reporting:report", "Write a run of a suite as one HTML file."
        ),
        "baseline": eval_baseline,
    },
    examples=(
        "uwf eval add 01JK7M --to bugs",
        "uwf eval run bugs --workflow solve-issue",
        "uwf eval compare solve-issue~1 solve-issue",
    ),
    help="Suites of cases that workflows and agents are judged by.",
)
