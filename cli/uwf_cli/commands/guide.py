"""`uwf guide`: reference texts for agents."""

from __future__ import annotations

import click

from uwf_cli.command import command
from uwf_cli.invocation import Invocation
from uwf_cli.views import Table

GUIDES = {
    "workflows": "Write a workflow.",
    "scripts": "Write a workflow script.",
    "agents": "Write an agent.",
    "uwf": "Drive uwf from a script or an agent.",
    "example": "A workflow to start from, as YAML.",
}
"""The texts in the folder `guides`, and what each is for."""


@command(
    "uwf guide                     lists them",
    "uwf guide example > solve-issue.yaml",
    "uwf guide workflows > WORKFLOWS.md",
    "uwf guide workflows | uwf run my-author -p -",
)
@click.argument("name", required=False, type=click.Choice(tuple(GUIDES)))
def guide(invocation: Invocation, name: str | None) -> None:
    """Print a reference text or an example workflow."""
    if name is None:
        invocation.emit(
            [{"guide": each, "about": about} for each, about in GUIDES.items()],
            Table(("", "guide"), ("", "about")),
        )
        return
    from importlib.resources import files

    suffix = "yaml" if name == "example" else "md"
    text = (files("uwf_cli") / "guides" / f"{name}.{suffix}").read_text(encoding="utf-8")
    invocation.emit_document(text, {"guide": name, "text": text}, rich=suffix == "md")
