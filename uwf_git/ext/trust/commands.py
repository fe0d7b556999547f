"""`uwf trust` init, show, set, log, and `uwf remote hook`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from uwf_git.ext.trust import policy_file, server_hook
from uwf_git.plugin import Invocation, Record, Table, command, read_bytes


@command("uwf trust init", "uwf trust init ann")
@click.argument("name", required=False)
def init(invocation: Invocation, name: str | None) -> None:
    """Make a first policy, signed with your key, in which you are the only person and the maintainer.

    NAME is your name in the policy, by default the first part of your address. The key is the one that git
    signs with (user.signingKey). The policy has no rules yet: uwf trust show --file prints the file to add
    people and rules to, and uwf trust set takes it.
    """
    invocation.emit(policy_file.begin(invocation.instance_for_writing(), name), _CHANGED)


@command("uwf trust show", "uwf trust show --file > trust.yaml")
@click.option("--file", "is_file", is_flag=True, help="Print the trust file as written.")
def show(invocation: Invocation, is_file: bool) -> None:
    """Show the policy in force: people, keys and rules.

    `first` is the commit that this store trusted on first use: compare it with a teammate's. It is the same in
    every store of a team.
    """
    if is_file:
        text = policy_file.file(invocation.instance)
        invocation.emit_document(text.rstrip("\n"), {"file": text})
        return
    invocation.emit(policy_file.show(invocation.instance), _shown)


@command("uwf trust set trust.yaml")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--accept-existing", is_flag=True, help="Accept as they are all records here that don't meet it."
)
def set_(invocation: Invocation, file: Path, accept_existing: bool) -> None:
    """Make FILE the policy, signed with your key. Only a maintainer whom the policy in force names can.

    Mistakes are reported with their lines, and nothing is changed. With --accept-existing, the ids of refs with
    unsigned history are added to the file as accepted. uwf push shares the policy.
    """
    instance = invocation.instance_for_writing()
    invocation.emit(policy_file.change(instance, read_bytes(file), str(file), accept_existing), _CHANGED)


@command("uwf trust log")
def log(invocation: Invocation) -> None:
    """List the policy's versions, newest first: commit, signer and time."""
    invocation.emit(
        policy_file.log(invocation.instance), Table(("", "{commit:short}"), ("", "signer"), ("", "time"))
    )


_CHANGED = Record(
    *(("policy", "commit"), "signer"),
    ("unchanged", lambda value: "" if value["changed"] else "it says so already"),
)


def _shown(value: Any) -> str:
    keys = [{"person": name, **key} for name, person in value["people"].items() for key in person["keys"]]
    groups = [{"group": name, "people": members} for name, members in value["groups"].items()]
    parts = [
        _POLICY(value),
        _KEYS(keys),
        Table("group", "people")(groups) if groups else "",
        "\n".join(map(policy_file.rule_text, value["rules"])) or "no rule",
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts if part)


_POLICY = Record(
    *(("policy", "commit"), "first", ("signer", "{signer}, {time}")),
    ("you", lambda policy: policy["you"] or "your key is not in it"),
    *("maintainers", ("allows", "allow"), "problem"),
)


def _times(key: Any) -> str:
    return (
        ", ".join(f"{word} {key[word]}" for word in ("from", "until", "revoked") if word in key) or "always"
    )


_KEYS = Table("person", "kind", ("key", "fingerprint"), ("valid", _times))


@command(
    "uwf remote hook                           print it",
    "uwf remote hook --install /srv/team.git   put it into a bare repository",
)
@click.option(
    "--install",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="Write it as PATH/hooks/update, or to PATH's core.hooksPath.",
)
def hook(invocation: Invocation, install: Path | None) -> None:
    """Print an update hook for a server's bare repository. It needs uwf on the server.

    The hook judges each pushed ref of uwf by the trust policy of that repository, and refuses what is invalid or
    doesn't meet it, with the reason. Deletions and rewritten history are refused unless the policy allows them.
    """
    if install is None:
        invocation.emit_document(server_hook.script().rstrip("\n"), {"hook": server_hook.script()})
        return
    path = server_hook.installed(install)
    if (other := server_hook.pre_receive_of_others(path)) is not None:
        invocation.warn(
            f"{other} is another hook, so each ref of a push is judged by what is there before it"
        )
    if path.parent != install.expanduser() / "hooks":
        invocation.warn(
            f"core.hooksPath of {install} names {path.parent}: each repository that uses it has the hook"
        )
    invocation.emit({"path": str(path)}, "wrote {path}")
