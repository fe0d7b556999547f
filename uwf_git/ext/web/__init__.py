"""Web pages of a store: a server for its user, and the same pages as files."""

from uwf_git.plugin import Command, Export, Extension

EXTENSION = Extension(
    "web",
    commands=(
        Command("web", "uwf_git.ext.web.command:web", "Serve web pages of threads on this machine.", "Read"),
        Command("web invite", "uwf_git.ext.web.command:invite", "Let a person sign in to the pages.", "Read"),
    ),
    exports=(Export("--html", "uwf_git.ext.web.page.thread:export", "Output file. - is standard output."),),
)
