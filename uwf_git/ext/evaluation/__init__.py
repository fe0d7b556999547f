"""Suites of cases, their runs, judges, and the comparison of two versions."""

from uwf_git.ext import Command, Extension

EXTENSION = Extension(
    "evaluation",
    commands=(
        Command(
            "eval",
            "uwf_git.ext.evaluation.commands.tree:eval_",
            "Suites of cases that workflows and agents are judged by.",
            "Many at once",
        ),
    ),
)
