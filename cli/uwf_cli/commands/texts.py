"""`uwf help`, `guide` and `templates`: texts that come with the command, and the files that `uwf init --template`
writes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from uwf_cli.command import Group, command
from uwf_cli.invocation import Invocation
from uwf_cli.views import Table
from uwf_git.base.errors import Invalid, Usage

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

TOPICS = ("environment", "exit-statuses", "output", "storage", "threads")
"""The texts in the folder `topics`."""
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")


@command(
    "uwf help",
    "uwf help thread start    the same as: uwf thread start --help",
    "uwf help exit-statuses",
)
@click.argument("names", metavar="[COMMAND|TOPIC]", nargs=-1)
@click.pass_context
def help_(context: click.Context, invocation: Invocation, names: tuple[str, ...]) -> None:
    """Print the help of a command or a topic.

    Topics: environment, exit-statuses, output, storage, threads.
    """
    if len(names) == 1 and names[0] in TOPICS:
        text = _LINK.sub(r"\1", topic(names[0]))
        invocation.emit_document(text, {"topic": names[0], "text": text}, rich=True)
        return
    root, rest = context.find_root(), list(names)
    while rest and isinstance(group := root.command, Group):
        name, member, rest = group.resolve_command(root, rest)
        assert member is not None
        root = click.Context(member, info_name=name, parent=root)
    click.echo(root.get_help(), color=False)


def topic(name: str) -> str:
    """Return the Markdown of one of TOPICS."""
    return (_folder("topics") / f"{name}.md").read_text(encoding="utf-8")


GUIDES = {
    "workflows": "Write a workflow.",
    "scripts": "Write a workflow script.",
    "agents": "Write an agent.",
    "uwf": "Drive uwf from a script or an agent.",
    "skill": "The same for claude, codex and others, as a skill to install.",
    "example": "A workflow to start from, as YAML.",
}
"""The texts in the folder `guides`, and what each is for."""
SKILLS = {"claude": ".claude/skills", "codex": ".agents/skills"}
"""The folders of a project in which programs look for skills; `.agents` is that of others too."""


@command(
    "uwf guide                     lists them",
    "uwf guide example > solve-issue.yaml",
    "uwf guide workflows > WORKFLOWS.md",
    "uwf guide workflows | uwf run my-author -p -",
    "uwf guide skill --install claude     so that it can use uwf in this project",
)
@click.argument("name", required=False, type=click.Choice(tuple(GUIDES)))
@click.option(
    "--install",
    type=click.Choice(tuple(SKILLS)),
    help="Of skill: write it where this program looks for a project's skills.",
)
def guide(invocation: Invocation, name: str | None, install: str | None) -> None:
    """Print a reference text or an example workflow."""
    if install is not None and name != "skill":
        raise Usage("--install is for uwf guide skill", f"uwf guide skill --install {install}")
    if name is None:
        invocation.emit(
            [{"guide": item, "about": about} for item, about in GUIDES.items()],
            Table(("", "guide"), ("", "about")),
        )
        return
    suffix = "yaml" if name == "example" else "md"
    text = (_folder("guides") / f"{name}.{suffix}").read_text(encoding="utf-8")
    if install is not None:
        path = Path.cwd() / SKILLS[install] / "uwf" / "SKILL.md"
        if path.exists() and not _is_skill(path):
            raise Invalid(f"{path} is there already, and is not overwritten", "move it away first")
        path.unlink(missing_ok=True)
        write_files({path: text.encode()})
        invocation.emit({"guide": name, "file": str(path)}, "{file}")
        return
    invocation.emit_document(text, {"guide": name, "text": text}, rich=suffix == "md")


TEMPLATES = {
    "bugfix": "Reproduce a bug, fix it, test, review, and have a person decide.",
    "develop": "Plan in phases, implement each, review, test, commit.",
    "release": "Prepare a release, test it, ask a person, publish, try what was published.",
    "review": "Review a change, check each finding, and fail if it must not be merged.",
    "triage": "Sort a report, look into it, and draft the answer that a person sends.",
}
"""The workflows in the folder `templates`, and what each does."""


@command("uwf templates", "uwf init --template bugfix")
def templates(invocation: Invocation) -> None:
    """List the workflows that uwf init --template writes: each with its setup, ready to run."""
    invocation.emit(
        [{"template": item, "about": about} for item, about in TEMPLATES.items()],
        Table(("", "template"), ("", "about")),
    )


def files_of(template: str, folder: Path) -> Mapping[Path, bytes]:
    """Return the files of a template by path. Raises Invalid if another file is at one of the paths."""
    from uwf_git.api.workflows import FOLDER

    where = _folder("templates") / template
    sources = {f"{template}.yaml": f"{template}.yaml", f"{template}.md": "README.md"}
    files = {folder / FOLDER / name: (where / source).read_bytes() for name, source in sources.items()}
    for path, content in files.items():
        if os.path.lexists(path) and not _has(path, content):
            raise Invalid(
                f"{path} is there already, and is not overwritten",
                "rename it first, or work in another folder",
            )
    return files


def write_files(files: Mapping[Path, bytes]) -> None:
    """Write the files that are not there yet, with their folder. Raises Invalid."""
    for path, content in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not _has(path, content):
                _write(path, content)
        except OSError as error:
            raise Invalid(f"cannot write {path}: {error}", "check the folder and free space") from None


def _write(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        try:
            file.write(content)
            file.flush()
        except OSError:  # of a full disk; half a file would be taken for another one
            path.unlink()
            raise


def _is_skill(path: Path) -> bool:
    """Return whether a file is a skill that this command wrote, of any version."""
    return path.is_file() and path.read_bytes().startswith(b"---\nname: uwf\n")


def _has(path: Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content


def _folder(name: str) -> Traversable:
    from importlib.resources import files

    return files("uwf_cli") / name
