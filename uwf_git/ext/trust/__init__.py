"""The trust policy: its file, the guard of every open store, and the hook of servers."""

from uwf_git.plugin import Command, Extension

EXTENSION = Extension(
    "trust",
    guard="uwf_git.ext.trust.guard:guard",
    commands=(
        Command(
            "trust", "uwf_git.ext.trust.tree:trust", "Say who may sign what, and with which keys.", "Share"
        ),
        Command(
            "remote hook",
            "uwf_git.ext.trust.commands:hook",
            "Print an update hook that enforces the trust policy on a server.",
        ),
    ),
)
