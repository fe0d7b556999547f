"""`uwf allow`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from uwf_git.ext.project.review import readable, review
from uwf_git.plugin import (
    Invalid,
    Invocation,
    NotFound,
    Setups,
    Untrusted,
    Usage,
    checkout_around,
    command,
    config_with,
    require_person,
    terminal,
)


@command(
    "uwf allow                     shows the set-up of the project, and asks",
    "uwf allow --json              shows it, and allows nothing",
    "uwf allow --digest 5f0c1e…    allows it if it is still that one",
    "uwf allow --revoke",
)
@click.option("--digest", metavar="DIGEST", help="Allow it without asking, if this is its digest.")
@click.option("--yes", is_flag=True, help="Allow it without asking, whatever it is.")
@click.option("--revoke", is_flag=True, help="Forget what you allowed of this project.")
def allow(invocation: Invocation, digest: str | None, yes: bool, revoke: bool) -> None:
    """Show what a project's .uwf would do, with its texts, and allow it.

    Nothing of it counts before, and what was changed since is shown as a diff and doesn't count until it is
    allowed, too. That you allowed it is remembered beside your own settings. Only a person can allow something.

    Exit 5 if nothing was allowed.
    """
    if revoke + yes + (digest is not None) > 1:
        raise Usage("--digest, --yes and --revoke exclude each other", "give one of them")
    location, folder = invocation.location, Path.cwd()
    setups = Setups.of_location(location)
    if revoke:
        require_person("takes back what is allowed", location.root, shared=True)
        old = setups.revoke(folder)
        if old is None:
            raise NotFound("nothing of this project is allowed", "uwf allow shows what there is")
        invocation.emit({"digest": old.digest, "state": "revoked"}, "its set-up no longer counts")
        return
    checkout = checkout_around(folder)
    state = setups.state_at(folder)
    here = state.here
    if checkout is None or checkout.top is None or here is None:
        raise NotFound("no project with a .uwf folder around this one", "uwf init writes one")
    value: dict[str, Any] = review(here, state.allowed, config_with(location, here), checkout.top)
    if state.is_allowed:
        invocation.emit({**value, "state": "allowed"}, _shown)
        return
    if not here.has_settings and state.allowed is None:
        invocation.emit(
            {**value, "state": "workflows"}, "{project}/.uwf has workflows alone: nothing has to be allowed"
        )
        return
    pending = {**value, "state": "new" if state.allowed is None else "changed"}
    if digest is not None and digest.lower() != here.digest:
        what = "a longer" if here.digest.startswith(digest.lower()) else "another"
        raise Invalid(
            f"the set-up here has {what} digest: {here.digest}", "look at it: uwf allow --format text"
        )
    is_asked = (
        invocation.format == "text" and terminal.is_terminal(sys.stdin) and terminal.is_terminal(sys.stderr)
    )
    if digest is None and not yes:
        invocation.emit(pending, _shown)
        if not is_asked or not click.confirm("Allow it?", default=False, err=True):
            hint = "" if is_asked else f"once you have read it: uwf allow --digest {here.digest}"
            raise Untrusted("nothing was allowed", hint)
    require_person("allows what a project sets up", location.root, shared=True)
    setups.allow(folder, here)  # what was shown, whatever is there by now
    if digest is None and not yes:
        invocation.note("allowed")
    else:
        invocation.emit({**value, "state": "allowed"}, _allowed)


def _allowed(value: Any) -> str:
    return f"allowed  {value['digest']}"


def _shown(value: Any) -> str:
    parts: list[str] = []
    if value["state"] == "changed":
        parts.append(value["diff"])
    elif value["state"] == "new":
        parts += [f"--- .uwf/{path}\n{readable(text).rstrip()}" for path, text in value["files"].items()]
    rows = [(effect["kind"], effect["what"], effect["where"]) for effect in value["effects"]]
    parts.append(
        terminal.table([tuple(map(readable, row)) for row in rows]).rstrip() if rows else "it does nothing"
    )
    if value["overridden"]:
        parts.append(readable(f"your own settings count for {', '.join(value['overridden'])}"))
    if value["missing"]:
        parts.append("\n".join(f"not here: {readable(line)}" for line in value["missing"]))
    parts.append(f"{value['project']}/.uwf  {value['digest']}  {value['state']}")
    return "\n\n".join(parts)
