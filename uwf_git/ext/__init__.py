"""The extensions that ship: a folder each, with `EXTENSION` in its `__init__.py`.

`uwf_git.base.extensions` reads these names, in their order. Nothing else outside of its folder knows an extension.
"""

OURS = (
    "trust",
    "agents",
    "builtin",
    "crews",
    "code",
    "evaluation",
    "fleet",
    "web",
    "top",
    "mcp",
    "traces",
    "monitoring",
    "importers",
    "atif",
    "harbor",
    "attest",
    "ci",
    "landing",
    "retention",
    "langgraph",
    "project",
)
