"""A project's set-up: what `uwf allow` shows of it, and what `uwf init` writes."""

from uwf_git.plugin import Command, Extension

EXTENSION = Extension(
    "project",
    commands=(
        Command(
            "allow",
            "uwf_git.ext.project.commands:allow",
            "Show and allow what a project sets up.",
            "Run",
        ),
    ),
    checks="uwf_git.ext.project.checks:project_checks",
    project_files="uwf_git.ext.project.files:project_files",
)
