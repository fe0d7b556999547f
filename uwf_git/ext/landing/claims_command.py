"""`uwf claims`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, BinaryIO

import click
from click.exceptions import Exit

from uwf_git.plugin import (
    OBJECT_ID,
    Git,
    Invocation,
    NotFound,
    NothingToVerify,
    StoreDamaged,
    Usage,
    command,
    one_line,
    open_checkout,
    terminal,
)

_NAME_IT = "name the tree: --tree ID"


@command(
    "gh pr view 57 --json body --jq .body | uwf claims",
    "uwf claims request.md --tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904",
)
@click.argument("file", metavar="[FILE]", type=click.File("rb"), default="-")
@click.option("--tree", metavar="ID", help="Tree under review. Default: that of HEAD here.")
def claims(invocation: Invocation, file: BinaryIO, tree: str | None) -> None:
    """Hold the claims of a request against the thread that they name.

    FILE has the text of a pull request by uwf land; without it, standard input has. A claim holds if the store has the
    thread and in it the step, or the check with its log, if that was made on the tree under review, and says what is
    claimed. Pull the thread before.

    Exit 7 if a claim is refused, 13 if there is none.
    """
    from uwf_git.ext.landing.claims import LARGEST_TEXT, Judged, Refusal, judge, read_claims

    if tree is not None and not re.match(OBJECT_ID, tree):
        raise Usage(
            f"{one_line(tree, 60)} is no id of a tree", "give it whole: --tree $(git rev-parse HEAD^{tree})"
        )
    data = file.read(LARGEST_TEXT + 1)
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    reading = (
        Refusal("claims-too-large", f"the text has over {LARGEST_TEXT >> 20} MiB")
        if len(data) > LARGEST_TEXT
        else read_claims(text)
    )
    if reading is None:
        raise NothingToVerify("the request has no claims", "land its thread, which writes them: uwf land ID")
    judged = (
        Judged(None, (reading,))
        if isinstance(reading, Refusal)
        else judge(invocation.instance, reading, tree or _tree_here())
    )
    invocation.emit(judged.as_json(), _view)
    if not judged.holds:
        raise Exit(StoreDamaged.exit_status)


def _tree_here() -> str:
    """Return the tree of the commit that is checked out in this folder. Raises Usage."""
    try:
        git_dir = open_checkout(Path.cwd()).git_dir
    except NotFound:
        raise Usage("this folder is no checkout", _NAME_IT) from None
    done = Git(git_dir).run("rev-parse", "--verify", "--quiet", "HEAD^{tree}", check=False)
    if done.code:
        raise Usage("nothing is checked out here", _NAME_IT)
    return done.out.decode("ascii").strip()


def _view(value: Any) -> str:
    rows = [
        (
            "refused" if claim["refused"] else "holds",
            f"step {claim['step']}" if claim["step"] else "check",
            claim["what"] + (f" — {claim['refused']['message']}" if claim["refused"] else ""),
        )
        for claim in value["claims"]
    ]
    lines = [f"refused  {item['message']}" for item in value["refused"]]
    return terminal.escape("\n".join([*lines, *("  ".join(row) for row in rows)]))
